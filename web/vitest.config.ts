/* Several test files start a browser; a small machine can take one at a time. */

import { defineConfig } from "vitest/config";

export default defineConfig({ test: { fileParallelism: false } });
