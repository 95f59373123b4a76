/*
 * Plays Holdfast's part for a real browser: serves the built page with the headers that Holdfast
 * sends, blobs to who has the key, and lanes' sockets.
 */

import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { type WebSocket, WebSocketServer } from "ws";
import { Assembler, type Bytes, type Received, split } from "#wire/frame";
import {
  type BlobRef,
  type FromLane,
  type Hello,
  SUBPROTOCOL,
  TOKEN_SUBPROTOCOL_PREFIX,
  type ToLane,
  type Welcome,
} from "#wire/messages";

const DIST = join(import.meta.dirname, "../../dist");
const LIMIT_MS = 30_000;

export const TOKEN = "token-of-the-test";
const BLOB_KEY = "key-of-the-test";

const HEADERS = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Cache-Control": "no-cache",
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
};

const TYPES: Record<string, string> = {
  html: "text/html",
  js: "text/javascript",
  mjs: "text/javascript",
  css: "text/css",
  svg: "image/svg+xml",
  wasm: "application/wasm",
  map: "application/json",
};

export class FakeHoldfast {
  /** How often each blob was asked for. */
  readonly downloads = new Map<string, number>();
  /** Served to the page as a script of its own, to do what a person would. */
  readonly commands: string[] = [];
  readonly #server: Server;
  readonly #blobs = new Map<string, Uint8Array>();
  readonly #connections: LaneConnection[] = [];
  readonly #changed = new Changed();

  static async start(): Promise<FakeHoldfast> {
    const holdfast = new FakeHoldfast();
    await new Promise<void>((resolve) => holdfast.#server.listen(0, "127.0.0.1", resolve));
    return holdfast;
  }

  private constructor() {
    this.#server = createServer((request, response) => this.#serve(request, response));
    const sockets = new WebSocketServer({
      server: this.#server,
      path: "/lane",
      maxPayload: 16 << 20,
      perMessageDeflate: false,
      handleProtocols: (offered) =>
        offered.has(SUBPROTOCOL) && offered.has(TOKEN_SUBPROTOCOL_PREFIX + TOKEN)
          ? SUBPROTOCOL
          : false,
    });
    sockets.on("connection", (socket) => {
      this.#connections.push(new LaneConnection(socket));
      this.#changed.now();
    });
  }

  link(lanes: string): string {
    return `${this.origin}/join#token=${TOKEN}&lanes=${lanes}`;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  addBlob(bytes: Uint8Array): BlobRef {
    const name = `sha256-${createHash("sha256").update(bytes).digest("hex")}`;
    this.#blobs.set(name, bytes);
    return { name, byteLen: bytes.length };
  }

  /** The next lane that says hello. */
  async lane(): Promise<LaneConnection> {
    const connection = await this.#changed.until(() => this.#connections.shift());
    connection.hello = (await connection.next("hello")).message;
    return connection;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const path = new URL(request.url ?? "/", this.origin).pathname;
    if (path === "/test/command") {
      response.writeHead(200, HEADERS).end(this.commands.shift() ?? "");
    } else if (path === "/test/driver.js") {
      response.writeHead(200, { ...HEADERS, "Content-Type": "text/javascript" }).end(DRIVER);
    } else if (path.startsWith("/blobs/")) {
      this.#serveBlob(path.slice("/blobs/".length), request, response);
    } else {
      this.#serveFile(path === "/join" ? "/join.html" : path, response);
    }
  }

  #serveBlob(name: string, request: IncomingMessage, response: ServerResponse): void {
    const bytes = this.#blobs.get(name);
    if (request.headers.authorization !== `Bearer ${BLOB_KEY}`) {
      response.writeHead(401, HEADERS).end();
    } else if (!bytes) {
      response.writeHead(404, HEADERS).end();
    } else {
      this.downloads.set(name, (this.downloads.get(name) ?? 0) + 1);
      response.writeHead(200, { ...HEADERS, "Content-Type": "application/octet-stream" });
      response.end(bytes);
    }
  }

  #serveFile(path: string, response: ServerResponse): void {
    const file = join(DIST, path);
    if (!file.startsWith(DIST) || !existsSync(file)) {
      response.writeHead(404, HEADERS).end();
      return;
    }
    const type = TYPES[path.split(".").at(-1) ?? ""] ?? "application/octet-stream";
    const driver = '<script type="module" src="/test/driver.js"></script>';
    const body =
      type === "text/html"
        ? readFileSync(file, "utf8").replace("</head>", `${driver}</head>`)
        : readFileSync(file);
    response.writeHead(200, { ...HEADERS, "Content-Type": type }).end(body);
  }
}

/** One connection of a lane. */
export class LaneConnection {
  hello: Hello | null = null;
  readonly received: Received<FromLane>[] = [];
  readonly #socket: WebSocket;
  readonly #changed = new Changed();
  #nextId = 0;

  constructor(socket: WebSocket) {
    this.#socket = socket;
    const assembler = new Assembler<FromLane>();
    socket.on("message", (data: Buffer) => {
      const received = assembler.push(new Uint8Array(data).buffer);
      if (received) {
        this.received.push(received);
      }
      this.#changed.now();
    });
  }

  welcome(welcome: Partial<Welcome> = {}): void {
    this.send({
      type: "welcome",
      session: "session-of-the-test",
      resumed: false,
      name: "chromium-1/wasm",
      blobKey: BLOB_KEY,
      cacheLimitBytes: 2 ** 30,
      tensorLimitBytes: 2 ** 30,
      frameBytes: 2 ** 20,
      heartbeatMs: 60_000,
      ...welcome,
    });
  }

  send(message: ToLane, body: Bytes[] = []): void {
    for (const bytes of [...split(this.#nextId++, message, body)].flat()) {
      this.#socket.send(bytes);
    }
  }

  /** The first message of this type, for this request if one is given; an error fails. */
  async next<T extends FromLane["type"]>(type: T, request?: number): Promise<Letter<T>> {
    const isFor = (message: FromLane) =>
      request === undefined || ("request" in message && message.request === request);
    const { message, body } = await this.#changed.until(() =>
      this.received.find(
        ({ message }) =>
          isFor(message) &&
          (message.type === type || (message.type === "error" && request !== undefined)),
      ),
    );
    if (message.type !== type) {
      throw new Error(`waited for ${type}, got ${JSON.stringify(message)}`);
    }
    return { message, body } as Letter<T>;
  }

  /** Cuts the line without a word. */
  cut(): void {
    this.#socket.terminate();
  }
}

type Letter<T extends FromLane["type"]> = Received<Extract<FromLane, { type: T }>>;

/** Waits for conditions, with a limit. */
class Changed {
  #waiting: (() => void)[] = [];

  now(): void {
    for (const wake of this.#waiting.splice(0)) {
      wake();
    }
  }

  async until<T>(find: () => T | undefined): Promise<T> {
    const end = Date.now() + LIMIT_MS;
    for (;;) {
      const found = find();
      if (found !== undefined) {
        return found;
      }
      if (Date.now() > end) {
        throw new Error(`nothing came within ${LIMIT_MS} ms`);
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, LIMIT_MS);
        this.#waiting.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }
}

/** Asks for something to do, as a person might, and does it. */
const DRIVER = `
const poll = async () => {
  const command = await (await fetch("/test/command")).text();
  if (command === "reload") location.reload();
  if (command === "press") document.getElementById("toggle").click();
  setTimeout(poll, 50);
};
poll();
`;
