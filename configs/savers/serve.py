"""Saves and resumes by a saver, for configs with `suite: program`. The saver is a Python file with a function train().

    serve.py SAVER.py                        prints "ready", then takes the lines below and forks for each
    serve.py SAVER.py setup OUT              trains one step and saves it to OUT
    serve.py SAVER.py save OUT               goes on from OUT, trains a second step and saves it
    serve.py SAVER.py resume OUT RESULT      goes on from OUT to the third step, writes RESULT
    serve.py SAVER.py whole OUT              all three steps, resuming what stands in OUT, for tools that run whole trainings

RESULT says at which step the resumption began, and has a line for each part that train() returns, with its hash. Exit status 3:
nothing could be resumed. A server loads PyTorch once; each command is then a fork of a few hundredths of a second. torch_save.py
beside this file shows what a saver looks like.
"""

import ctypes
import gc
import hashlib
import importlib.util
import os
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.modules["serve"] = sys.modules[__name__]


def tensors_hash(tensors):
    """A hash of tensors' names, shapes and bytes, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
    return digest.hexdigest()


def report(result, lines):
    with open(result, "w") as out:
        out.write("".join(line + "\n" for line in lines))


class NothingToResume(Exception):
    """The saver found no checkpoint, and says so."""


def command(target, words):
    """Runs one command; its exit status."""
    try:
        what, out = words[0], words[1]
        if what == "setup":
            target.train(out, last=1)
        elif what == "save":
            target.train(out, last=2)
        elif what == "resume":
            began, tensors = target.train(out, last=3, must_resume=True)
            report(words[2], [f"began at step {began}", *(f"{name} {value}" for name, value in tensors)])
        elif what == "whole":
            os.makedirs(out, exist_ok=True)
            began, tensors = target.train(out, last=3)
            print(f"resumed from step {began}", flush=True)
            report(os.path.join(out, "final.txt"), [f"{name} {value}" for name, value in tensors])
        else:
            raise SystemExit(f"unknown command {what}")
        return 0
    except NothingToResume as error:
        print(f"nothing to resume: {error}", file=sys.stderr)
        return 3
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", file=sys.stderr)
        return 4


def leave(status):
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def warm_up(target, scratch):
    target.train(scratch, last=1)
    target.train(scratch, last=2)
    target.train(scratch, last=3, must_resume=True)


def serve(target):
    """What is loaded or made at the first step (PyTorch imports its compiler then) is so before the first fork."""
    with tempfile.TemporaryDirectory() as scratch:
        kept = os.dup(1)
        os.dup2(2, 1)
        getattr(target, "warm_up", warm_up)(target, scratch)
        os.dup2(kept, 1)
    os.write(1, b"ready\n")
    while line := sys.stdin.readline():
        gc.freeze()
        words = line.split()
        child = os.fork()
        if child == 0:
            null = os.open("/dev/null", os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(2, 1)
            leave(command(target, words))
        os.waitpid(child, 0)


def saver_of(path):
    """The module in that file; it may import what stands beside it."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("saver", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    target = saver_of(sys.argv[1])
    if len(sys.argv) > 2:
        leave(command(target, sys.argv[2:]))
    serve(target)


if __name__ == "__main__":
    main()
