"""Shapes of programs without a line for the probe: each step is recorded, or the recording says that it is not; and how a run ended."""

import atexit
import os
import pathlib
import re
import subprocess
import sys

import torch

from case import Case, need
from lockstep_probe import ownership, trace_file, zero

PYTHON = pathlib.Path(__file__).resolve().parent.parent.parent / "probe" / "python"

COMMON = """
import os, sys, copy
import torch, torch.distributed as dist
from torch.distributed import destroy_process_group  # as most programs have it: by its name, before the probe comes
def net(): return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
def sgd(m): return torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
def steps(n, m, *optimizers):
    for i in range(n):
        for o in optimizers:
            o.zero_grad(); m(torch.ones(3, 4) * (i + 1)).pow(2).mean().backward(); o.step()
def train(n, make=sgd): m = net(); steps(n, m, make(m)); return m
torch.manual_seed(0)
"""
GAN = """
g, d = net(), torch.nn.Linear(2, 1); og, od = sgd(g), sgd(d)
for i in range(5):
    od.zero_grad(); d(g(torch.ones(3, 4)).detach()).mean().backward(); od.step()
    og.zero_grad(); d(g(torch.ones(3, 4))).mean().neg().backward(); og.step()
"""
LOOKAHEAD = """
class Ahead(torch.optim.Optimizer):
    def __init__(self, inner): self.inner = inner; super().__init__(inner.param_groups, {})
    def step(self): self.inner.step()
m = net(); steps(5, m, Ahead(sgd(m)))
"""
RANKS = """
import torch.multiprocessing as mp
def rank(r, meet):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=r, world_size=2); torch.manual_seed(0)
    m = torch.nn.parallel.DistributedDataParallel(net()); o = sgd(m)
    for i in range(5):
        if FAILS == r and i == 3: raise ValueError("no such column")
        steps(1, m, o)
    destroy_process_group()
mp.start_processes(rank, (FOLDER + "/meet",), 2, start_method="fork")
"""
AFTER_GROUP = """
dist.init_process_group("gloo", init_method=f"file://{FOLDER}/meet", rank=0, world_size=1)
m = net(); o = sgd(m); steps(5, m, o); destroy_process_group(None); steps(2, m, o)
"""
NOTEBOOK = """
import lockstep_probe
for again in range(2):
    m = net(); o = sgd(m); p = lockstep_probe.attach(m, o, out=OUT); steps(5, m, o)
"""
LINES_AFTER = """
import lockstep_probe
train(2); m = net(); o = sgd(m); p = lockstep_probe.attach(m, o); steps(5, m, o)
"""
FORK = """
m = net(); o = sgd(m); steps(2, m, o)
child = os.fork()
if child == 0: steps(4, m, o); END()
os.waitpid(child, 0); steps(3, m, o)
"""
PHASES = """
m = net(); steps(2, m, sgd(m[2])); steps(3, m, sgd(m))
"""
RESUMED = """
m = net(); o = sgd(m); steps(2, m, o); kept = copy.deepcopy(m.state_dict()), copy.deepcopy(o.state_dict())
o = sgd(m); m.load_state_dict(kept[0]); o.load_state_dict(kept[1]); steps(3, m, o)
"""
REPLACED = "m = net(); sgd(m); o = torch.optim.AdamW(m.parameters()); steps(5, m, o)"
AGAIN = """
if os.environ.get("AGAIN") == "1": steps(3, m, o); sys.exit(0)
os.environ["AGAIN"] = "1"; os.execv(sys.executable, [sys.executable, FILE])
"""
SECOND, OTHER = r"a second optimizer \(SGD\) took {}", r"another process \(.*\) took {}"


def python(code, traces, **more):
    """A program in a process of its own, as `lockstep trace` starts it. What it printed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1), os.dup2(writing, 2)
        atexit._clear()
        os.environ.update(LOCKSTEP_TRACE=traces, LOCKSTEP_EMPTIED=traces)
        if "attach(m, o, out" in code:
            os.environ.pop("LOCKSTEP_TRACE")
        end_of_parent = os.getpid()

        def end():
            atexit._run_exitfuncs()
            sys.stderr.flush(), sys.stdout.flush()
            os._exit(0)

        try:
            zero.arm()
            exec(compile(code, "train.py", "exec"), {"FOLDER": os.path.dirname(traces), "OUT": traces, "END": end, **more})  # noqa: S102
        except SystemExit:
            pass
        except BaseException:  # noqa: BLE001
            sys.excepthook(*sys.exc_info())
        if os.getpid() == end_of_parent:
            end()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def recorded(traces, rank=0):
    try:
        return [step for step, _ in trace_file.read_steps(f"{traces}/rank-{rank}.trace") if step >= 0]
    except OSError:
        return []


def shape(count, said, *programs, verdict="identical", ranks=1, also="", **more):
    """`programs` run one after the other in one folder: `count` steps are recorded, and `said` stands in the verdict's sentence."""

    def check(bench):
        traces = bench.path("traces")
        os.makedirs(traces)
        printed = "".join(python(COMMON + program, traces, **more) for program in programs)
        for rank in range(ranks):
            found = recorded(traces, rank)
            need(len(found) == count, f"rank {rank} has recorded {found}: {printed[-1500:]}")
        need(b"unnamed" not in pathlib.Path(f"{traces}/rank-0.trace").read_bytes(), "parameters have no names")
        result = bench.compare(traces, traces)
        need(result["verdict"] == verdict, f"{result['verdict']}: {result['sentence']}: {printed[-1500:]}")
        is_said = re.search(said, result["sentence"]) if said else not re.search("not recorded|ended", result["sentence"])
        need(is_said, f"said: {result['sentence']}: {printed[-1500:]}")
        need(not also or len(recorded(f"{traces}/{also}")) == count, f"nothing in {also}")
        return result["sentence"][:120]

    return check


def by_subprocess(bench):
    """A Python that a trainer starts between its steps; and a program that starts itself again: processes with a start of their own, and a site's sitecustomize."""
    traces, file = bench.path("traces"), bench.folder / "train.py"
    script = COMMON + "m = net(); o = sgd(m); steps(3, m, o)\n"
    bench.folder.joinpath("sitecustomize.py").write_text("print('of this site')\n")
    env = dict(os.environ, LOCKSTEP_TRACE=traces, LOCKSTEP_EMPTIED=traces, PYTHONPATH=f"{PYTHON}/lockstep_probe/startup:{PYTHON}:{bench.folder}")
    below = script + "if len(sys.argv) == 1:\n    import subprocess; subprocess.run([sys.executable, __file__, 'child'], check=True); steps(3, m, o)\n"
    for name, text, count, said in (("below", below, 6, OTHER.format("3 steps")), ("again", script + AGAIN.replace("FILE", "__file__"), 2, "took 6 steps")):
        folder = f"{traces}-{name}"
        file.write_text(text)
        done = subprocess.run([sys.executable, str(file)], env={**env, "LOCKSTEP_TRACE": folder, "LOCKSTEP_EMPTIED": folder}, capture_output=True, text=True, check=False)
        need(done.returncode == 0 and len(recorded(folder)) == count, f"{name}: {recorded(folder)}: {done.stderr[-1500:]}")
        need(done.stdout.count("of this site") == 2, f"a site's own sitecustomize: {done.stdout}")
        sentence = bench.compare(folder, folder)["sentence"]
        need(re.search(said, sentence), f"{name} said: {sentence}: {done.stderr[-1500:]}")
    return ""


def other_owner(bench):
    """A trace of an earlier run is replaced with a word, that of a process that lives is not."""
    import lockstep_probe

    def program(run):
        for number in range(2):
            child = os.fork()
            if child == 0:
                atexit._clear()
                model = torch.nn.Linear(4, 2)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                probe = lockstep_probe.attach(model, optimizer, out=f"{run.folder}/a")
                for _ in range(3 + number):
                    model(torch.ones(2, 4)).sum().backward()
                    optimizer.step()
                probe.finish()
                os._exit(0)
            os.waitpid(child, 0)
        need(len(recorded(f"{run.folder}/a")) == 4, f"recorded: {recorded(run.folder + '/a')}")

    said = "".join(bench.run(program, 1, "run"))
    need("replaces the trace of an earlier run" in said, f"said: {said}")
    return ""


def rank_that_raises(bench):
    """Of two ranks one raises: the verdict begins with it, and not with what the other met."""
    traces = bench.path("traces")
    os.makedirs(traces)
    said = python(COMMON + RANKS, traces, FAILS=1)
    facts = ownership.facts_of(traces, 1)
    need(facts["ended"]["error"] == "ValueError: no such column" and facts["ended"]["after"] == 3, f"noted: {facts['ended']}: {said[-800:]}")
    sentence = bench.compare(traces, traces)["sentence"]
    need(sentence.startswith("Run A ended after 3 steps: rank 1, ValueError: no such column (train.py:"), f"said: {sentence}")
    return sentence[:100]


def one_that_raises(text, error):
    def check(bench):
        traces = bench.path("traces")
        os.makedirs(traces)
        said = python(COMMON + text, traces)
        ended = ownership.facts_of(traces, 0)["ended"]
        need(ended["error"] == error and ended["after"] == 3, f"noted: {ended}: {said[-1500:]}")
        return ""

    return check


SWEEP = "train(4)\nfor i in range(3):\n    c = os.fork()\n    if c == 0: train(1); END()\n    os.waitpid(c, 0)"
PARENT_MAKES = "m = net(); o = sgd(m); c = os.fork()\nif c == 0: train(5); END()\nos.waitpid(c, 0)"
STATE_FIRST = """
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
m = net(); o = sgd(m); a, b = get_state_dict(m, o); set_state_dict(m, o, model_state_dict=a, optim_state_dict=b); steps(5, m, o)
"""
RESTARTED = "os.environ['TORCHELASTIC_RESTART_COUNT'] = '1'\n"
IN_THREAD = "import threading\ndef run(): train(3); raise KeyError('rows')\nt = threading.Thread(target=run); t.start(); t.join()"
CAUGHT = "m = net(); o = sgd(m); steps(2, m, o)\ntry: raise ValueError\nexcept ValueError: pass\ntry: sys.exit(3)\nexcept SystemExit: pass\nsteps(3, m, o)"

CASES = [Case(f"programs: {name}", check) for name, check in {
    "one training": shape(5, "", "train(5)"),
    "two trainings": shape(5, SECOND.format("5 steps"), "train(5); train(5)", verdict="inconclusive"),
    "a short one beside it": shape(5, SECOND.format("1 step "), "train(5); train(1)"),
    "learning rate finder, dry run": shape(2, SECOND.format("10 steps"), "train(2); train(10)", verdict="inconclusive"),
    "k folds": shape(4, r"2 other optimizers \(Adam, SGD\) took 8 steps", "train(4); train(4); train(4, lambda m: torch.optim.Adam(m.parameters()))",
                     verdict="inconclusive"),
    "two optimizers of two models": shape(5, "", GAN),
    "an optimizer within another": shape(5, "", LOOKAHEAD),
    "an optimizer that never steps": shape(10, "", "a = net(); oa = sgd(a); train(10)"),
    "an optimizer in another's place": shape(5, "", REPLACED),
    "resumed in one process": shape(5, "", RESUMED),
    "resumed by torch.distributed.checkpoint": shape(5, "", STATE_FIRST),
    "started again by torchrun": shape(5, "an attempt before torchrun started the ranks again took 2 steps", "train(3); os._exit(1)", RESTARTED + "train(5)"),
    "two phases of one model": shape(5, "", PHASES),
    "one program after another": shape(6, OTHER.format("4 steps"), "train(6)", "train(4)"),
    "a fork that trains": shape(5, OTHER.format("4 steps"), FORK),
    "forks of a sweep": shape(4, r"took 1 step that is not recorded, another process .* took 1 step", SWEEP),
    "a child trains, its parent does not": shape(5, "", PARENT_MAKES),
    "a cell that is run twice": shape(5, r"traces/2 holds a further training", NOTEBOOK, also="2"),
    "lines after another training": shape(5, r"another model \(SGD\) that was trained before attach\(\) took 2 steps", LINES_AFTER),
    "ranks by multiprocessing": shape(5, "", RANKS, ranks=2, FAILS=-1),
    "training after the group's end": shape(5, "the training went on after the end of its recording and took 2 steps", AFTER_GROUP),
    "what is raised and caught": shape(5, "", CAUGHT),
    "processes of their own": by_subprocess,
    "a trace of an earlier run": other_owner,
    "a rank that raises": rank_that_raises,
    "an exception": one_that_raises("train(3); raise ValueError('x')", "ValueError: x"),
    "an exception in the thread that trains": one_that_raises(IN_THREAD, "KeyError: 'rows'"),
    "a status": one_that_raises("train(3); sys.exit(4)", "left with status 4"),
}.items()]  # fmt: skip
