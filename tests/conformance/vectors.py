"""Writes vectors.json: tensors with the hashes that docs/trace.md gives them."""

import json
import pathlib

import torch

from foreign import normal
from trace_writer import raw_bytes, tensor_hash


def vector(tensor, positions=None):
    entry = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "bytes": raw_bytes(tensor).hex(),
             "hash": f"{tensor_hash(tensor, positions):016x}"}  # fmt: skip
    return entry | ({"positions": positions} if positions is not None else {})


def main():
    values = normal((3, 4), 2, 1)
    vectors = [vector(values.to(dtype)) for dtype in
               (torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.bool, torch.float16, torch.int32)]  # fmt: skip
    vectors += [
        vector(values.reshape(-1)), vector(values.reshape(2, 6)), vector(values[0, 0]), vector(torch.zeros(0, 3)),
        vector(torch.zeros(2, 0)), vector(torch.tensor([0.0, -0.0])), vector(values, [5, 0, 12]),
        vector(normal((1500,), 1, 2)), vector(normal((2, 600), 1, 3).double(), [1, 3]),
    ]  # fmt: skip
    path = pathlib.Path(__file__).with_name("vectors.json")
    path.write_text("[\n" + ",\n".join(json.dumps(each) for each in vectors) + "\n]\n")


if __name__ == "__main__":
    main()
