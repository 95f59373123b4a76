import { expect, it } from "vitest";
import { Queue } from "#engine/queue";

it("starts work only once what was asked before is done", async () => {
  const queue = new Queue();
  const events: string[] = [];
  let finishFirst = () => {};
  const first = queue.run(async () => {
    events.push("first starts");
    await new Promise<void>((resolve) => {
      finishFirst = resolve;
    });
    events.push("first ends");
  });
  const second = queue.run(() => events.push("second"));
  await expect.poll(() => events).toEqual(["first starts"]);
  finishFirst();
  await Promise.all([first, second]);
  expect(events).toEqual(["first starts", "first ends", "second"]);
});

it("goes on after work that failed", async () => {
  const queue = new Queue();
  const failing = queue.run(() => {
    throw new Error("no");
  });
  const next = queue.run(() => "next");
  await expect(failing).rejects.toThrow("no");
  expect(await next).toBe("next");
});
