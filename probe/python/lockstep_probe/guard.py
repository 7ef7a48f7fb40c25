"""Keeps a trainer safe from the probe: its calls are timed, and an error in one switches the probe off."""

import functools
import os
import sys
import time


def say(text):
    """One message on stderr, with the rank."""
    rank = os.environ.get("RANK", "")
    sys.stderr.write(f"lockstep_probe{f' (rank {rank})' if rank else ''}: {text}\n")
    sys.stderr.flush()


def guarded(method):
    """Of the trainer's calls into a part of `self.probe`: counts their time, and switches the probe off where it fails. Training goes on."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        probe = self.probe
        if probe.is_off or probe.closed or os.getpid() != probe.process:
            return None
        began = time.perf_counter()
        outer, probe.inside = probe.inside, True
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  whatever it is, the trainer must not see it
            if os.environ.get("LOCKSTEP_PROBE_STRICT"):
                raise
            probe.give_up(error)
            return None
        finally:
            probe.inside = outer
            if not outer:
                probe.seconds += time.perf_counter() - began

    return call
