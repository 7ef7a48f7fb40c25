"""Writes a twin's run as lockstep's traces, by the writer that tests/conformance made from docs/trace.md."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/conformance"))

from trace_writer import TraceWriter, mix, tensor_hash  # noqa: E402
from twin import Watch  # noqa: E402

WORD = (1 << 64) - 1
ROLES = {
    "context_encoder": "row encoder", "action_encoder": "candidate encoder", "energy_head": "score head",
    "log_tau": "temperature",
}  # fmt: skip


def declared(s):
    """What the header says: what the run was configured to do."""
    header = {
        "optimizer": {"name": "adamw", "weight_decay": s.weight_decay}, "clip_norm": s.clip, "accumulation": s.accumulation,
        "global_batch": s.batch, "base_rate": s.rate, "precision": "float32", "gradient_reduction": "mean",
    }  # fmt: skip
    if s.trainer == "energy":
        header["parameters"] = [{"prefix": p, "role": r} for p, r in ROLES.items()]
    return header


class Tracer(Watch):
    def __init__(self, folder, rank, settings):
        run = f"peers-{pathlib.Path(folder).name}"[-60:]
        self.all_ids = []
        self.w = TraceWriter(str(folder), rank, settings.world, run, declared(settings), trainer="peers_twin")

    def start(self, t):
        self.w.begin(-1)
        self._parameters(t)
        self.w.end()

    def begin(self, t, step):
        self.w.begin(step)
        self.w.scalar("control", "learning_rate", t.optimizer.param_groups[0]["lr"], alike=True)
        self.rows, self.ids, self.key, self.draws = [], [], 0, 0

    def samples(self, t, ids):
        self.w.samples(ids)
        self.all_ids.append(ids)

    def random(self, t, keys, draws):
        for key in keys:
            h = mix(t.step + 1)
            for part in key:
                h = mix((h ^ (part + 0x9E3779B97F4A7C15)) & WORD)
            self.key = (self.key + h) & WORD
        self.draws += draws * len(keys)

    def collective(self, t, op, tag, inside, outside, reduction):
        self.w.collective(op, "data", tag, tensor_hash(inside), tensor_hash(outside), tuple(inside.shape), reduction)

    def energies(self, t, ids, energies, columns):
        name = "energies" if t.micro == 0 else f"energies.{t.micro}"
        self.w.tensor("energies", name, energies, ids=ids)
        self.w.tensor("energies", "columns" if t.micro == 0 else f"columns.{t.micro}", columns)

    def row_losses(self, t, ids, rows):
        self.rows.append(rows.detach())
        self.ids += ids

    def bucket(self, t, index, before, after):
        inside = sum(tensor_hash(g) for g in before.values()) & WORD
        outside = sum(tensor_hash(g) for g in after.values()) & WORD
        elements = sum(g.numel() for g in before.values())
        self.w.collective("reduce_gradients", "gradients", f"bucket {index}", inside, outside, (elements,), "mean")

    def gradients(self, t, local, reduced):
        w = self.w
        w.random("dropout", self.key, self.draws)
        w.scalar("loss", "loss", t.loss)
        w.scalar("loss", "row_weight", t.weight)
        if t.s.trainer == "energy":
            w.scalar("loss", "temperature", float(t.model.log_tau.detach().exp()))
        w.tensor("loss", "row_losses", torch.cat(self.rows), ids=self.ids)
        for n in reduced:
            if n in local:
                w.tensor("local gradients", n, local[n])
        for n, g in reduced.items():
            w.tensor("reduced gradients", n, g, alike=True)

    def norm(self, t, norm):
        self.w.scalar("gradient norm", "gradient_norm", float(norm), alike=True)

    def applied(self, t, grads):
        for n, g in grads.items():
            self.w.tensor("applied gradients", n, g, alike=True)

    def end(self, t):
        self._parameters(t)
        self.w.end()

    def finish(self, t):
        self.w.finish()

    def _parameters(self, t):
        for n, p in t.model.named_parameters():
            self.w.tensor("parameters", n, p, alike=True)
        for n, b in t.model.named_buffers():
            self.w.tensor("parameters", "buffer/" + n, b, alike=True)
        count = 0
        for n, p in t.model.named_parameters():
            state = t.optimizer.state.get(p, {})
            if "exp_avg" in state:
                self.w.tensor("optimizer state", f"first_moment/{n}", state["exp_avg"], alike=True)
                self.w.tensor("optimizer state", f"second_moment/{n}", state["exp_avg_sq"], alike=True)
                count = max(count, int(state["step"]))
        self.w.scalar("optimizer state", "updates", count, alike=True)
