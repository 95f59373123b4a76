/* Starts the worker that tries the storages, and reports what it says. */

const worker = new Worker("/worker.js", { type: "module" });
const report = (body: unknown) => fetch("/report", { method: "POST", body: JSON.stringify(body) });
worker.onmessage = ({ data }) => report(data);
worker.onerror = ({ message }) => report(`the worker failed: ${message}`);
worker.postMessage("go");
