/*
 * The Chromium that npm packages, for tests: unpacked once, started with an address, and ended with
 * all its children whatever happens to the test.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brotliDecompressSync } from "node:zlib";

const WEB = join(import.meta.dirname, "../..");
const PACKAGE = join(WEB, "../third-party/node_modules/@sparticuz/chromium");

export class Chromium {
  readonly #process: ChildProcess;
  readonly #profile: string;

  /** Starts a browser without a window that opens `address`. */
  static launch(address: string): Chromium {
    const folder = unpack();
    const profile = mkdtempSync(join(tmpdir(), "holdfast-engine-test-"));
    const process = spawn(
      join(folder, "chromium"),
      [
        "--headless",
        "--no-sandbox",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--enable-unsafe-webgpu",
        "--enable-features=WebMachineLearningNeuralNetwork",
        `--user-data-dir=${profile}`,
        address,
      ],
      // A group of its own, so that its children end with it.
      {
        detached: true,
        stdio: "ignore",
        env: { LD_LIBRARY_PATH: join(folder, "lib"), HOME: profile },
      },
    );
    return new Chromium(process, profile);
  }

  private constructor(process: ChildProcess, profile: string) {
    this.#process = process;
    this.#profile = profile;
  }

  /** Ends when the browser does. */
  async exit(): Promise<void> {
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      await once(this.#process, "exit");
    }
  }

  async close(): Promise<void> {
    if (this.#process.pid !== undefined && this.#process.exitCode === null) {
      process.kill(-this.#process.pid, "SIGKILL");
    }
    await this.exit();
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

function unpack(): string {
  const { version } = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8"));
  const cache = join(WEB, "node_modules/.cache");
  const folder = join(cache, `chromium-${version}`);
  if (existsSync(folder)) {
    return folder;
  }
  mkdirSync(cache, { recursive: true });
  const unfinished = mkdtempSync(join(cache, "chromium-"));
  const open = (name: string) => brotliDecompressSync(readFileSync(join(PACKAGE, "bin", name)));
  writeFileSync(join(unfinished, "chromium"), open("chromium.br"));
  chmodSync(join(unfinished, "chromium"), 0o755);
  for (const archive of ["al2023.tar.br", "swiftshader.tar.br"]) {
    const { status, stderr } = spawnSync("tar", ["-x", "-C", unfinished], { input: open(archive) });
    if (status !== 0) {
      throw new Error(`cannot unpack ${archive}: ${stderr}`);
    }
  }
  renameSync(unfinished, folder);
  return folder;
}
