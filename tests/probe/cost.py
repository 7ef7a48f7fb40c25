"""What the probe costs at level hash: steps of a transformer, with and without it by turns in one process. Decides nothing.

    cost.py [--parameters MILLIONS] [--tokens N] [--pairs N]
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "probe" / "python"))

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402

import lockstep_probe  # noqa: E402

WORDS, POSITIONS = 1000, 64


class Model(nn.Module):
    def __init__(self, width, layers=4):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(POSITIONS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens) + self.places.weight))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parameters", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--pairs", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    width = int((options.parameters * 1e6 / 48) ** 0.5) // 8 * 8
    rows = options.tokens // POSITIONS
    model = Model(width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, WORDS, (rows, POSITIONS + 1))
    with tempfile.TemporaryDirectory() as folder:
        probe = lockstep_probe.attach(model, optimizer, out=folder, level="hash", snapshots="none")
        seconds = {True: [], False: []}
        for number in range(2 * options.pairs + 4):
            with_probe = number % 2 == 0
            probe.is_off = not with_probe
            began = time.perf_counter()
            probe.rows(range(rows), tokens)
            optimizer.zero_grad()
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            probe.step(loss)
            # A step's records are written when the next one begins: with the probe on, here.
            probe.open() if with_probe else None
            if number >= 4:
                seconds[with_probe].append(time.perf_counter() - began)
        probe.is_off = True
    count = sum(p.numel() for p in model.parameters())
    on, off = statistics.median(seconds[True]), statistics.median(seconds[False])
    print(f"{count / 1e6:.1f} M parameters, {rows * POSITIONS} tokens a step, {options.pairs} pairs: {1000 * on:.0f} ms with the probe, "
          f"{1000 * off:.0f} ms without: {on / off:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
