"""Saves and resumes by one of the savers beside this file.

    serve.py TARGET                          prints "ready", then takes the lines below and forks for each
    serve.py TARGET setup OUT                trains one step and saves it to OUT
    serve.py TARGET save OUT                 goes on from OUT, trains a second step and saves it
    serve.py TARGET resume OUT RESULT        goes on from OUT to the third step, writes RESULT
    serve.py TARGET whole OUT                all three steps, resuming what stands in OUT, for tools that run whole trainings

RESULT says at which step the resumption began and which weights it ended with. Exit status 3: nothing could be resumed.
A server loads PyTorch once; each command is then a fork of a few hundredths of a second.
"""

import gc
import hashlib
import importlib
import os
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def weights_hash(tensors):
    """A hash of tensors' names, shapes and bytes, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(bytes(tensor.reshape(-1).view(dtype_of_bytes()).tolist()))
    return digest.hexdigest()


def dtype_of_bytes():
    import torch

    return torch.uint8


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


def main():
    target = importlib.import_module(sys.argv[1])
    if len(sys.argv) > 2:
        leave(command(target, sys.argv[2:]))
    serve(target)


if __name__ == "__main__":
    main()
