"""PyTorch's DebugMode: hashes of every operation's inputs and outputs on each rank, compared with those of a clean run."""

import functools

import ranks
from answer import found, silent
from twin import Trainer, sample


STEPS = 6


def logs_of(settings, rank, fault=None):
    """Each step's log; the part before the first step has none."""
    from torch.utils._debug_mode import DebugMode

    trainer, logs = Trainer(settings, rank, fault), []
    for step, ids, everything in trainer.batches():
        with DebugMode() as mode, DebugMode.log_tensor_hashes(hash_fn=["norm", "hash_tensor"]):
            trainer.train_step(step, ids, everything)
        logs.append(mode.logs)
    return logs


def first_mismatch(clean, other):
    """Step and operation of the first difference, or nothing."""
    from torch.utils._debug_mode import DebugMode

    for step, (a, b) in enumerate(zip(clean, other)):
        try:
            mismatches = DebugMode.check_hash_mismatches(a, b)
        except ValueError as error:
            return step, f"check_hash_mismatches: {error}"
        # Outputs of a collective are hashed before the message is there, and DDP looks at buffers that nobody has written:
        # what is really brought, or read, shows in the next operation.
        mismatches = [m for m in mismatches if not m["call"].startswith(("c10d::", "aten::as_strided"))]
        if mismatches:
            m = mismatches[0]
            return step, f"{len(mismatches)} mismatches; first: output of {m['call']}"
    return None


class DebugModeHashes:
    name, title, package, layout = "debug_mode", "DebugMode hashes", "torch", "8x3"
    asked = (
        "`torch.utils._debug_mode.DebugMode` with `log_tensor_hashes([\"norm\", \"hash_tensor\"])` around each of "
        f"{STEPS} steps, on each of 8 real ranks, once clean and once with the fault; `check_hash_mismatches`. "
        "Mismatches of `c10d::` operations are left out (their outputs are hashed before the message arrives), and so are "
        "`aten::as_strided` (DDP's views of buffers not yet written) and hashes of inputs: with any of them every "
        "clean pair differs. Found: any other mismatch on any rank, or logs that cannot be matched"
    )
    cannot_be_asked = (
        "two layouts (their operations have other shapes, so logs cannot be matched); the ranks together (each has its own log, "
        "and nothing combines them); the order of a tensor's elements (its norm and XOR ignore it)"
    )

    def __init__(self, faults):
        self.faults, self.known = list(faults), {}

    def notes(self):
        return {}

    def _ask(self, settings, others):
        """others: {name: fault}, all compared with one clean run in the same processes."""

        def work(rank):
            for i in range(settings.samples):
                sample(settings.trainer, i)  # what is made once is no difference between two runs
            clean = logs_of(settings, rank)
            return {name: first_mismatch(clean, logs_of(settings, rank, fault)) for name, fault in others.items()}

        answers, logs = ranks.run(settings.world, work, deadline_s=300 + 60 * len(others))
        if any(a is None for a in answers):
            if len(others) > 1:  # one of them ends its run: each by itself
                return {k: v for name, fault in others.items() for k, v in self._ask(settings, {name: fault}).items()}
            words = next((log.strip().splitlines()[-1] for log in logs if "Traceback" in log), "the ranks die without a word")
            return {name: found(None, f"the run itself fails: {words}") for name in others}
        return {name: _earliest([a[name] for a in answers if a[name]]) for name in others}

    def clean(self, workloads, seeds=(5, 6, 7)):
        for workload, settings in workloads.items():
            for seed in seeds:
                yield f"{workload} 8x3, seed {seed}", functools.partial(self._clean, settings.but(world=8, seed=seed, steps=STEPS))

    def _clean(self, settings):
        return self._ask(settings, {"none": None})["none"]

    def fault(self, fault):
        if fault.name not in self.known:
            group = {f.name: f for f in self.faults if f.workload == fault.workload and f.name not in self.known}
            names = [fault.name] + [n for n in group if n != fault.name][:11]
            self.known.update(self._ask(fault.settings.but(world=8, steps=STEPS), {n: group[n] for n in names}))
        return self.known[fault.name]


def _earliest(seen):
    if not seen:
        return silent()
    step, words = min(seen, key=lambda a: a[0])
    return found(step, words)
