"""TrainCheck: invariants learnt from a clean run, checked on the run in question, on 2 real ranks of 12 rows."""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys

from answer import cannot, found, silent
from faults import FAULTS

STEPS = 5
#: asked unless all are wanted: each costs half a minute
SOME = """initial_weights_differ rank_behind parameter_not_reduced gradients_not_zeroed past_the_reducer parameter_not_updated
clip_missing weight_flip nan_gradient candidates_detached weight_decay_missing gradient_sum set_epoch_forgotten rate_linear
loss_times_world local_negatives""".split()


class Traincheck:
    name, title, package, layout = "traincheck", "traincheck", "traincheck", "2x12"
    asked = (
        "`traincheck-collect` (tracker `subclass`: `proxy`, the default, ends in a segmentation fault under DDP, and "
        f"`sampler` requires the optimizer in the script), {STEPS} steps on 2 real ranks; `traincheck-infer` from the clean run of "
        "seed 5; `traincheck-collect --invariants` of the run in question, `traincheck-check`. Invariants that the clean run "
        "of seed 6 breaks or never meets are left out, as a user would after the first alarm. Found: at least one other is broken"
    )
    cannot_be_asked = "whether two layouts compute the same, as its invariants describe one run"

    def __init__(self, scratch, everything=False):
        self.folder, self.everything = pathlib.Path(scratch) / "traincheck", everything
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(pathlib.Path(__file__).with_name("traincheck_target.py"), self.folder / "target.py")
        python = pathlib.Path(sys.executable).parent / "torchrun"
        (self.folder / "run.sh").write_text(f"{python} --nproc_per_node 2 --master_port 29617 target.py\n")
        self.learnt = {}

    def _call(self, program, *arguments, fault="none", workload="energy", seed=5):
        environment = dict(os.environ, PEERS_SOURCES=str(pathlib.Path(__file__).parent), PEERS_FAULT=fault,
                           PEERS_WORKLOAD=workload, PEERS_SEED=str(seed), PEERS_STEPS=str(STEPS))  # fmt: skip
        command = [str(pathlib.Path(sys.executable).parent / program), *map(str, arguments)]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    def _collect(self, to, *more, **which):
        shutil.rmtree(self.folder / to, ignore_errors=True)
        return self._call("traincheck-collect", "--pyscript", "target.py", "--shscript", "run.sh", "--models-to-track",
                          "model", "--model-tracker-style", "subclass", "--output-dir", to, *more, **which)  # fmt: skip

    def _check(self, trace, invariants):
        shutil.rmtree(self.folder / f"{trace}-checked", ignore_errors=True)
        done = self._call("traincheck-check", "-f", trace, "-i", invariants, "--output-dir", f"{trace}-checked", "--no-html-report")
        results = self.folder / f"{trace}-checked" / trace
        if not (results / "failed.log").exists():
            raise RuntimeError(f"traincheck-check left no results: {done.stderr[-300:]}")
        return _objects(results / "failed.log"), _objects(results / "not_triggered.log")

    def _learn(self, workload):
        """Invariants of the clean run of seed 5 that also hold, and occur, on that of seed 6."""
        if workload in self.learnt:
            return self.learnt[workload]
        self._collect(f"{workload}-5", workload=workload)
        learnt = f"{workload}-learnt.json"
        self._call("traincheck-infer", "-f", f"{workload}-5", "-o", learnt)
        self._collect(f"{workload}-6", "--invariants", learnt, workload=workload, seed=6)
        failed, never = self._check(f"{workload}-6", learnt)
        drop = {_key(r["invariant"]) for r in failed + never}
        lines = (self.folder / learnt).read_text().splitlines()
        kept = [line for line in lines if _key(json.loads(line)) not in drop]
        (self.folder / f"{workload}-kept.json").write_text("\n".join(kept) + "\n")
        self.learnt[workload] = {"learnt": len(lines), "kept": len(kept), "broken_on_clean": len(failed)}
        return self.learnt[workload]

    def notes(self):
        return {"invariants": self.learnt}

    def _ask(self, fault, workload, seed):
        self._learn(workload)
        trace = f"{workload}-{fault}-{seed}"
        done = self._collect(trace, "--invariants", f"{workload}-learnt.json", fault=fault, workload=workload, seed=seed)
        if done.returncode != 0:
            return found(None, "the traced run itself fails: " + done.stdout[-200:])
        failed, _ = self._check(trace, f"{workload}-kept.json")
        shutil.rmtree(self.folder / trace, ignore_errors=True)
        if not failed:
            return silent()
        first = min(failed, key=_step)
        said = [r["invariant"]["text_description"] for r in sorted(failed, key=_step)]
        return found(_step(first) if _step(first) < 10**9 else None, f"{len(failed)} broken: " + "; ".join(said))

    def clean(self, workloads):
        for workload in workloads if self.everything else sorted({FAULTS[n].workload for n in SOME}):
            for seed in (7, 8):
                yield f"{workload} 2x12, seed {seed}", functools.partial(self._ask, "none", workload, seed)

    def fault(self, fault):
        if not self.everything and fault.name not in SOME:
            return cannot("not asked: half a minute a fault; `ci/peers --all` asks")
        return self._ask(fault.name, fault.workload, 5)


def _objects(path):
    text, place, out, decoder = path.read_text(), 0, [], json.JSONDecoder()
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        value, place = decoder.raw_decode(text, place)
        out.append(value)
    return out


def _key(invariant):
    return json.dumps({k: v for k, v in invariant.items() if not k.startswith("num_")}, sort_keys=True)


def _step(result):
    """The latest step among the records that break the invariant; 10^9 where none has one."""
    steps = [r.get("meta_vars.step") for r in result.get("trace") or []]
    steps = [int(s) for s in steps if isinstance(s, (int, float)) and s == s]
    return max(steps) - 1 if steps else 10**9  # it counts from 1
