"""Programs that lockstep_probe.starter forks: they find what an interpreter of their own would show them, train with the
same bits, and end as they end."""

import contextlib
import glob
import json
import os
import pathlib
import subprocess
import sys
import time

from case import Case, need
from lockstep_probe import trace_file

PROBE = str(pathlib.Path(__file__).resolve().parents[2] / "probe" / "python")
STARTUP = f"{PROBE}/lockstep_probe/startup{os.pathsep}{PROBE}"
TRAINER = """
import os, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler
if "RANK" in os.environ:
    dist.init_process_group("gloo")
torch.manual_seed(2)
net = nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.1), nn.Linear(9, 3))
model = nn.parallel.DistributedDataParallel(net) if dist.is_initialized() else net
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(120, 6), torch.randint(0, 3, (120,)))
world = dist.get_world_size() if dist.is_initialized() else 1
sampler = DistributedSampler(data, seed=5) if world > 1 else None
for x, y in DataLoader(data, batch_size=12 // world, sampler=sampler, num_workers=1):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
SEES = """
import atexit, json, os, numpy, random, signal, subprocess, sys, threading, torch
from own import value
if __name__ == "__main__":
    atexit.register(print, "at exit")
    threading.Timer(0.1, print, ["a thread that is waited for"]).start()
    main = sys.modules["__main__"]
    print(json.dumps([sys.argv, sys.path, __name__, __file__, __spec__ and __spec__.name, os.getcwd(),
        sorted(set(os.environ) - {"_", "PWD", "OLDPWD", "SHLVL", "LC_CTYPE"}), torch.get_num_threads(), sys.stdin.read(),
        [str(signal.getsignal(s)) for s in (2, 13, 15)], os.getpgrp() == os.getsid(0), value,
        main.json is json, sorted(k for k in vars(main) if not k.startswith("__"))]))
    own = subprocess.Popen([sys.executable, "-u", "other.py", "a b", str(os.getpid())], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, env={**os.environ, "RANK": "3"}, start_new_session=True, text=True)
    print(own.communicate()[0], own.returncode, subprocess.run([sys.executable, "killed.py"]).returncode)
    print(subprocess.run([sys.executable, "-c", "print(5)"], capture_output=True).stdout)
    open("random", "a").write(f"{random.random()}\\n{torch.initial_seed()}\\n{numpy.random.rand()}\\n")
    left = open(f"left-{sys.argv[-1]}", "w")
    left.write("not closed")
    if sys.argv[-1] == "raises":
        raise ValueError("raised")
    sys.exit(sys.argv[-1] if sys.argv[-1] == "a word" else 3)
"""
OTHER = """
import os, random, sys, torch
print(sys.argv[:2], os.environ['RANK'], os.getsid(0) == os.getpid(), os.getppid() == int(sys.argv[2]))
open('random', 'a').write(f'{random.random()}\\n{torch.initial_seed()}\\n')
sys.exit(9)
"""
SLEEPS = """
import subprocess, sys, time
if sys.argv[1:]:
    time.sleep(300)
subprocess.run([sys.executable, 'sleeps.py', 'x'], start_new_session=True)
"""
TOOL = f"#!{sys.executable}\nimport runpy, sys\nsys.path.insert(0, '.')\nrunpy.run_path('sees.py', run_name='__main__')\n"


class Starter:
    """A client."""

    def __init__(self, folder):
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        self.folder, self.ended, self.environment = str(folder), {}, {**os.environ, "PYTHONPATH": PROBE, "PATH": path}
        words = [sys.executable, "-u", "-m", "lockstep_probe.starter"]
        with open(os.path.join(folder, "starter.log"), "w") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=self.environment, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)

    def ask(self, *answers, **what):
        if what:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        while True:
            line = json.loads(self.process.stdout.readline())
            if "ended" in line:
                self.ended[line["ended"]] = line
            if any(each in line for each in answers):
                return line

    def start(self, name, words, **variables):
        log = os.path.join(self.folder, f"{name}.log")
        environment = self.environment | {"PYTHONPATH": STARTUP} | variables
        return self.ask("started", "cannot", start=name, words=words, environment=environment, folder=self.folder, log=log)

    def run(self, name, words, **variables):
        """How it ended, and what it said."""
        said = self.start(name, words, **variables)
        need("started" in said, f"{words}: {said}")
        while name not in self.ended:
            self.ask("ended")
        return self.ended[name]["code"], self.ended[name]["signal"], open(os.path.join(self.folder, f"{name}.log")).read()

    def ordinarily(self, words, **variables):
        environment = self.environment | {"PYTHONPATH": STARTUP} | variables
        files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run([sys.executable, *words[1:]], env=environment, cwd=self.folder, start_new_session=True, check=False, **files)
        return done.returncode, 0, done.stdout


def write(folder, **files):
    for name, text in files.items():
        path = pathlib.Path(folder, *name.split("__")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def recorded(folder):
    """All records of all ranks, but for where they lie."""
    found = {}
    for path in sorted(glob.glob(f"{folder}/*.trace")):
        for step, records in trace_file.read_steps(path):
            for k, r in enumerate(records):
                values = None if r.values is None else bytes(r.values.contiguous().view(-1).numpy())
                found[os.path.basename(path), step, k] = [r.phase, r.name, r.ids, values]
    return found


def same_bits(bench):
    """In torchrun's ranks and in one process, in the trainer's precision and in float64."""
    write(bench.folder, train=TRAINER)
    ranks = ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "train.py"]
    with Starter(bench.folder) as starter:
        loaded = starter.ask("imported", **{"import": [], "script": bench.path("train.py")})
        need(not loaded["failed"] and "torch" in loaded["imported"], f"{loaded}")
        for name, words in (("ranks", ranks), ("float64", ["python", "train.py"])):
            variables = {"LOCKSTEP_STEPS": "4"}
            if name == "float64":
                variables |= {"LOCKSTEP_DROPOUT": "off", "LOCKSTEP_PRECISION": "float64"}
            forked = starter.run(name, words, LOCKSTEP_TRACE=bench.path(f"{name}/forked"), **variables)
            ordinary = starter.ordinarily(words, LOCKSTEP_TRACE=bench.path(f"{name}/ordinary"), **variables)
            need(forked[:2] == ordinary[:2] == (0, 0), f"{forked} {ordinary}")
            a, b = (recorded(bench.path(f"{name}/{kind}")) for kind in ("forked", "ordinary"))
            other = [k for k in a if a[k] != b.get(k)][:5]
            need(len(a) > 100 and a == b, f"{name}: {len(a)} records, and {len(b)}; other ones: {other}")
        known = starter.ask("modules", modules=None)["modules"]
        need("torch.distributed.run" in known and "train" not in known, f"modules: {known}")
    return ""


def what_it_finds(bench):
    """The same output as an interpreter's, word for word; other random numbers in each process."""
    write(bench.folder, sees=SEES, other=OTHER, own="value = 4", killed="import os\nos.kill(os.getpid(), 9)")
    write(bench.folder, package__main=SEES, package____init__="")
    pathlib.Path(bench.path("tool")).write_text(TOOL)
    os.chmod(bench.path("tool"), 0o755)
    with Starter(bench.folder) as starter:
        starter.ask("imported", **{"import": ["numpy"], "script": bench.path("sees.py")})
        commands = ["python", "-u", "sees.py", "x"], ["python", "-m", "package.main", "raises"], ["./tool", "a word"]
        for number, words in enumerate(commands):
            more = {"OMP_NUM_THREADS": "2", "A": "b"} if number else {}
            forked = starter.run(str(number), words, **more)
            need(pathlib.Path(bench.path(f"left-{words[-1]}")).read_text() == "not closed", "a file that was left open")
            ordinary = starter.ordinarily(["python", *words] if number == 2 else words, **more)
            said = [each[2].replace(f"{bench.folder}/./", f"{bench.folder}/").replace("./tool", bench.path("tool")) for each in (forked, ordinary)]
            a, b = ("\n".join(sorted(each.splitlines())) for each in said)
            need(forked[:2] == ordinary[:2] and a == b, f"{words}: {forked[:2]} {ordinary[:2]}\n{a}\n---\n{b}")
        need(starter.run("killed", ["python", "killed.py"])[:2] == (137, 9), "a signal that ended a program")
    drawn = open(bench.path("random")).read().split()
    need(len(drawn) == len(set(drawn)) == 30, f"random numbers: {drawn}")
    return ""


def what_it_cannot(bench):
    """Each with its reason; and nothing is left running."""
    write(bench.folder, sleeps=SLEEPS, empty="", json__train="", json__inspect="")
    with Starter(bench.folder) as starter:
        need("nothing has been imported" in starter.start("early", ["python", "empty.py"])["why"], "before the import")
        loaded = starter.ask("imported", **{"import": ["no.such.module"], "script": bench.path("json/train.py")})
        reasons = {"python -c 1": "-c: of an interpreter's words only -u, -m and scripts", "python -X dev empty.py": "-X", "python": "no program",
                   "python none.py": "not a file", "bash x": "is not run by", "no-such-program": "not found",
                   "python json/train.py": "has a module inspect"}  # fmt: skip
        for words, why in reasons.items():
            said = starter.start("x", words.split())
            need(why in said.get("why", ""), f"{words}: {said}, {loaded}")
        said = starter.start("x", ["python", "empty.py"], PYTHONHASHSEED="4")
        need("PYTHONHASHSEED is '4'" in said.get("why", ""), f"another seed of hashes: {said}")
        pid, own = starter.start("sleeps", ["python", "sleeps.py"])["pid"], []
        until = time.monotonic() + 60
        while not own and time.monotonic() < until:
            with contextlib.suppress(OSError):
                children = map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
                own = [each for each in children if os.getsid(each) == each]
    need(own and not any(os.path.exists(f"/proc/{each}") for each in (pid, *own)), f"left running: {pid}, {own}")
    return ""


CASES = [
    Case("starter: the same bits, forked", same_bits),
    Case("starter: what a program finds, and how it ends", what_it_finds),
    Case("starter: what it cannot, and what it leaves", what_it_cannot),
]
