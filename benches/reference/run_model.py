"""Runs a model in PyPI's onnxruntime: MODEL FOLDER, where FOLDER has an INPUT.npy for each
input and gets an output-INDEX.npy for each output."""

import pathlib
import sys

import numpy
import onnxruntime

model, folder = sys.argv[1], pathlib.Path(sys.argv[2])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.log_severity_level = 3
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
feed = {node.name: numpy.load(folder / f"{index}.npy") for index, node in enumerate(session.get_inputs())}
for index, output in enumerate(session.run(None, feed)):
    numpy.save(folder / f"output-{index}.npy", output)
