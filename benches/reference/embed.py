"""Sentence embeddings from text, without Holdfast: FOLDER OUT.npy TEXT…
Tokenizer, onnxruntime, mean pooling, L2 norm."""

import pathlib
import sys

import numpy
import onnxruntime
import tokenizers

folder, out, texts = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.enable_padding()
encoded = tokenizer.encode_batch(texts)
mask = numpy.array([item.attention_mask for item in encoded], numpy.int64)
feed = {
    "input_ids": numpy.array([item.ids for item in encoded], numpy.int64),
    "attention_mask": mask,
    "token_type_ids": numpy.array([item.type_ids for item in encoded], numpy.int64),
}
session = onnxruntime.InferenceSession(str(folder / "onnx/model.onnx"), providers=["CPUExecutionProvider"])
hidden = session.run(None, feed)[0]
weights = mask[..., None].astype(numpy.float32)
pooled = (hidden * weights).sum(1) / weights.sum(1)
numpy.save(out, pooled / numpy.linalg.norm(pooled, axis=1, keepdims=True))
