"""The fastest of several `onnx.load` of a file, in seconds: FILE COUNT."""

import sys
import time

import onnx

times = []
for _ in range(int(sys.argv[2])):
    started = time.perf_counter()
    onnx.load(sys.argv[1])
    times.append(time.perf_counter() - started)
print(min(times))
