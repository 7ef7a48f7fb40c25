"""Starts programs for `lockstep check`: one process that has imported what they import, and that forks each of them.

Importing takes seconds, forking milliseconds. A forked program finds what a new interpreter would show it: its
environment, arguments, folder, files, signals and random numbers; only the seed of Python's hashes is that of this
process. What it starts itself by `subprocess` with the same interpreter, as torchrun, `accelerate launch` and Lightning
do, is forked too, by a copy of the process from before its program began.

Lines of JSON on stdin and stdout:
    {"import": [names], "script": path or null}
        {"imported": [names], "seconds": s, "failed": {name: why}}
    {"start": id, "words": [], "environment": {}, "folder": path, "log": path}
        {"started": id, "pid": n} or {"cannot": id, "why": text}
        and when it has ended {"ended": id, "code": n, "signal": n or 0, "seconds": s}
    {"modules": null}
        {"modules": [names]}: installed ones that programs which have ended had imported, and this process has not
At the end of stdin all that it has started is killed.
"""

import ast
import atexit
import builtins
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pickle
import random
import re
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import types
import weakref

from lockstep_probe import ownership, zero

# An optimizer's first step imports torch._dynamo.
_ALWAYS = ("torch", "torch._dynamo", "lockstep_probe.probe", "lockstep_probe.float64")
_PYTHONPATH = [os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
_STANDARD = os.path.realpath(sysconfig.get_path("stdlib")) + os.sep
_libc = ctypes.CDLL(None)
# Of prctl: orphans below this process become its children; the signal that it gets when its parent dies.
_SET_SUBREAPER, _SET_SIGNAL_OF_DEATH = 36, 1


def die_with_parent():
    _libc.prctl(_SET_SIGNAL_OF_DEATH, signal.SIGKILL)


class Cannot(Exception):
    """Why a command must be started as it is written."""


# What this process is like before it forks; `modules`: top-level ones, with the folder that each is in; `names`: all.
_start = types.SimpleNamespace(environment=dict(os.environ), learnt=tempfile.TemporaryFile("a+b"), modules={},
                               names=set(), bound=({}, ()), ranked=())  # fmt: skip  # noqa: SIM115


# What a command means.


def _is_this(path):
    """An interpreter: this one, of this virtual environment."""
    places = [(os.path.realpath(os.path.dirname(each)), os.path.realpath(each)) for each in (path or "", sys.executable)]
    return places[0] == places[1]


def _interpreter(path, search):
    """What the first line of a script names."""
    with open(path, "rb") as file:
        head = file.read(1000).decode(errors="replace")
    by_env, by_shell = r"\S*/env\s+(?:-S\s+)?(?P<name>\S+)", r"/bin/sh\n'''exec'\s+\"?(?P<path>[^\s\"]+)"
    found = re.match(rf"#!\s*(?:{by_env}|{by_shell}|(?P<plain>\S+))", head)
    return found and (found["path"] or found["plain"] or shutil.which(found["name"], path=search))


def _understood(words, environment, folder):
    """(is it `-m`? module or script, its arguments with itself) of a command. Raises Cannot."""
    for name in {*_start.environment, *environment}:
        special = name in ("MKL_NUM_THREADS", "TORCH_LOGS") or name.startswith(("PYTHON", "LD_"))
        here, there = _start.environment.get(name), environment.get(name)
        if special and here != there and name not in ("PYTHONPATH", "PYTHONUNBUFFERED"):
            raise Cannot(f"{name} is {there!r}, and was {here!r} for what has been imported")
    if "OMP_NUM_THREADS" in _start.environment and "OMP_NUM_THREADS" not in environment:
        raise Cannot("OMP_NUM_THREADS is not set, and was for what has been imported")
    search = environment.get("PATH")
    first = os.path.join(folder, words[0]) if os.sep in words[0] else shutil.which(words[0], path=search)
    if not first or not os.path.isfile(first):
        raise Cannot(f"{words[0]} is not found")
    rest = words[1:]
    if not _is_this(first):
        if not _is_this(_interpreter(first, search)):
            raise Cannot(f"{first} is not run by {sys.executable}")
        rest = [first, *rest]
    while rest[:1] == ["-u"]:
        rest = rest[1:]
    is_module = rest[:1] == ["-m"]
    rest = rest[is_module:]
    if not rest or (rest[0].startswith("-") and not is_module):
        raise Cannot(f"{' '.join(rest[:1]) or 'no program'}: of an interpreter's words only -u, -m and scripts are known")
    script = os.path.join(folder, rest[0])
    if not is_module and not os.path.isfile(script):
        raise Cannot(f"{rest[0]} is not a file")
    own = folder if is_module else os.path.dirname(os.path.realpath(script))
    hidden = _hidden(own)
    if hidden:
        raise Cannot(f"{own} has a module {hidden}, and an installed one of that name has been imported")
    return is_module, rest[0], rest


def _hidden(folder):
    """A module of the program's folder that it would not get, since another one of the name is there."""
    for name in os.listdir(folder):
        stem, is_file = name.partition(".")[0], name.endswith(tuple(importlib.machinery.all_suffixes()))
        if stem in _start.modules and (is_file or os.path.isfile(os.path.join(folder, name, "__init__.py"))):
            if _start.modules[stem] != os.path.realpath(folder):
                return stem
    return ""


# What a program imports.


def _place(spec):
    return os.path.realpath(spec.origin if spec.has_location else next(iter(spec.submodule_search_locations or ()), ""))


def _is_installed(spec):
    """And not the user's own, which nothing but the program itself may run."""
    where = _place(spec) if spec.origin not in ("built-in", "frozen") else _STANDARD
    return where.startswith(_STANDARD) or "site-packages" in where or "dist-packages" in where


def _imports(body):
    """(module, names) of the imports of a script's top level, and (variable, value) of what it sets of the environment."""
    for each in body:
        if isinstance(each, ast.Import):
            yield from ((alias.name, ()) for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            yield each.module, [alias.name for alias in each.names]
        elif not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            text = ast.unparse(each) if isinstance(each, (ast.Assign, ast.Expr)) else ""
            found = re.match(r"os\.environ(?:\[|\.setdefault\()('[^']*')(?:\] = |, )('[^']*')\)?$", text)
            if found:
                yield ast.literal_eval(found[1]), ast.literal_eval(found[2])
            for block in ("body", "handlers", "orelse", "finalbody"):
                yield from _imports(getattr(each, block, ()))


def _import(name, names=()):
    """Returns why it cannot be imported."""
    try:
        module = importlib.import_module(name)
        for each in names:
            with contextlib.suppress(Exception):  # the program's own import says what is wrong
                if getattr(module, each, None) is None and importlib.util.find_spec(f"{name}.{each}"):
                    importlib.import_module(f"{name}.{each}")
    except BaseException as error:  # noqa: BLE001  also SystemExit
        return f"{type(error).__name__}: {error}"
    return ""


def load(names, script=None):
    """Imports; returns why what cannot be imported cannot."""
    wanted, failed = [(name, ()) for name in (*_ALWAYS, *names)], {}
    if script:
        with open(script, "rb") as file, contextlib.suppress(SyntaxError):
            wanted += _imports(ast.parse(file.read()).body)
    own = os.path.dirname(os.path.realpath(script)) if script else ""
    variables = [each for each in wanted if isinstance(each[1], str)]
    os.environ.update(variables)
    for name, of_it in (each for each in wanted if not isinstance(each[1], str)):
        top = name.partition(".")[0]
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(top)
            is_own = own and any(os.path.exists(os.path.join(own, top + end)) for end in (".py", "/__init__.py"))
            if (spec is None or not _is_installed(spec) or is_own) and top != "lockstep_probe":
                continue
        why = _import(name, of_it)
        if why:
            failed[name] = why
    os.environ.clear()
    os.environ.update(_start.environment)
    specs = ((name, getattr(module, "__spec__", None)) for name, module in list(sys.modules.items()) if "." not in name)
    places = {name: _place(spec) for name, spec in specs if spec and spec.has_location and spec.origin}
    _start.modules = {name: os.path.dirname(place.replace("/__init__.py", "")) for name, place in places.items()}
    return failed


def problem():
    """Why no program can be forked."""
    torch = sys.modules.get("torch")
    if not hasattr(torch, "cuda"):
        return "PyTorch cannot be imported"
    opened = []
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            opened.append(os.readlink(f"/proc/self/fd/{each}"))
    if torch.cuda.is_initialized() or "/dev/nvidia-uvm" in opened:
        return "what the program imports has initialized CUDA, which a forked process cannot use"
    return "" if _computes() else "a forked process does not compute: an import has started threads that it lacks"


def _computes():
    """Does a forked process? One whose parent had a pool of OpenMP's threads waits for ever."""
    child = os.fork()
    if not child:
        import torch

        torch.ones(1 << 18).exp().sum().item()
        os._exit(0)
    for _ in range(1000):
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


# A program, in a process of its own.


def _become(program, words, environment, folder, fds):
    """This process, forked just now, runs what a command means. Does not return."""
    status = 1
    try:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        for fd in {fd for fd in fds if fd > 2}:
            os.close(fd)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        _renew(environment)
        if "RANK" not in environment:
            _Earlier().install()
        zero.arm()
        _rebind()
        status = _run(*program, [sys.executable, *words[1:]])
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            _flush()  # before garbage is collected, which a file that is left open may be part of
        with contextlib.suppress(BaseException):
            _say_modules()
        os._exit(status)


def _renew(environment):
    """What an interpreter's start would have made of the environment, and anew."""
    for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(each, signal.SIG_IGN if each in (signal.SIGPIPE, signal.SIGXFSZ) else signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    own = [os.path.abspath(each) for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = own + [each for each in sys.path if each not in _PYTHONPATH and each not in own]
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    torch = sys.modules["torch"]
    torch.default_generator.seed()
    threads = environment.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and threads != _start.environment.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    ranks = [environment.get(name, "") for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID")]
    for only in _start.ranked:
        only.rank = int(next(filter(str.isdigit, ranks), 0))


def _modules():
    return [each for each in list(sys.modules.values()) if isinstance(each, types.ModuleType)]


def _bound():
    """Functions by place and name, and what modules have imported of these: (a module's names, name, value)."""
    places = ((place, each) for place in ("torch", "torch.nn.functional") for each in vars(sys.modules[place]).items())
    functions = {(place, name): value for place, (name, value) in places if callable(value)}
    known = set(map(id, functions.values()))
    users = [vars(each) for each in _modules() if not each.__name__.startswith(("torch.", __name__))]
    return functions, [(names, *each) for names in users for each in names.items() if id(each[1]) in known]


def _rebind():
    """Modules that have imported functions by name get those of now, as they would have got them."""
    functions, bound = _start.bound
    there = ((id(value), value, vars(sys.modules[place])[name]) for (place, name), value in functions.items())
    now = {key: new for key, value, new in there if new is not value}
    for names, name, value in bound:
        names[name] = now.get(id(value), names[name])


def _run(is_module, name, argv, original):
    """As the interpreter does, with its end. Returns the status."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__, sys.argv, sys.orig_argv, status = builtins, list(argv), original, 0
    try:
        if is_module:
            sys.argv[0] = "-m"
            sys.path.insert(0, os.getcwd())
            runpy._run_module_as_main(name)
        else:
            main.__file__ = os.path.abspath(name)
            main.__loader__ = importlib.machinery.SourceFileLoader("__main__", main.__file__)
            sys.path.insert(0, os.path.dirname(os.path.realpath(name)))
            with open(name, "rb") as file:
                code = compile(file.read(), main.__file__, "exec", dont_inherit=True)
            exec(code, vars(main))  # noqa: S102
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if status == 1 and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001
        kind, error, trace = sys.exc_info()
        while trace.tb_next and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(kind, error.with_traceback(trace), trace)
        status = 130 if kind is KeyboardInterrupt else 1
    threading._shutdown()
    atexit._run_exitfuncs()
    return status & 255


def _say_modules():
    new = (module for name, module in list(sys.modules.items()) if name == "__main__" or name not in _start.names)
    specs = [spec for module in new if (spec := getattr(module, "__spec__", None))]
    names = [spec.name for spec in specs if spec.name not in _start.names and _is_installed(spec)]
    names = [name for name in names if not name.startswith(("lockstep_probe", "__"))]
    os.write(_start.learnt.fileno(), (json.dumps(names) + "\n").encode())


def _flush():
    """What a program has not closed."""
    sys.stdout.flush()
    for each in gc.get_objects():
        with contextlib.suppress(Exception):  # closed, or detached
            if isinstance(each, (io.TextIOWrapper, io.BufferedWriter)):
                each.flush()
    _libc.fflush(None)


class _Earlier:
    """A copy of this process from before its program begins. It forks what the program starts: by a process between that
    ends at once, so that the new one becomes this process's own child."""

    def __init__(self):
        self._channel, theirs = socket.socketpair()
        self._pid, self._lock = os.getpid(), threading.Lock()
        if not os.fork():
            self._channel.close()
            try:
                die_with_parent()
                while self._serve(theirs):
                    pass
            finally:
                os._exit(0)
        theirs.close()

    @staticmethod
    def _serve(channel):
        message, fds, _, _ = socket.recv_fds(channel, 1, 4)
        if not message:
            return False
        with open(fds.pop(), "rb") as file:
            session, asked = pickle.load(file)
        read, write = os.pipe()
        gate = os.pipe()  # shut until the process between has ended
        between = os.fork()
        if not between:
            child = os.fork()
            if not child:
                channel.close()
                for each in (read, write, gate[1]):
                    os.close(each)
                os.read(gate[0], 1)
                os.close(gate[0])
                if session:
                    os.setsid()
                _become(*asked, fds)
            os.write(write, b"%d" % child)
            os._exit(0)
        os.waitpid(between, 0)
        for each in (*gate, *fds):
            os.close(each)
        channel.sendall(os.read(read, 20))
        os.close(read)
        os.close(write)
        return True

    def install(self):
        owner = subprocess if hasattr(subprocess, "_fork_exec") else subprocess._posixsubprocess
        name = "_fork_exec" if owner is subprocess else "fork_exec"
        plain = getattr(owner, name)

        def fork_exec(*given):
            try:
                return self._fork(*self._asked(*given))
            except (Cannot, OSError, ValueError):  # also where the copy is gone
                return plain(*given)

        setattr(owner, name, fork_exec)

    def _asked(self, args, executables, close_fds, keep, cwd, env, *given):
        """Of _posixsubprocess.fork_exec. Raises Cannot."""
        in_read, _, _, out_write, _, err_write, _, pipe_write, _, session, *rest = given
        words, found = list(map(os.fsdecode, args)), list(map(os.fsdecode, executables))
        usual = close_fds and tuple(keep) == (pipe_write,) and all(each in (None, -1) or isinstance(each, bool) for each in rest)
        if os.getpid() != self._pid or not usual or not any(each.endswith(words[0]) for each in found):
            raise Cannot("not as a launcher starts its ranks")
        environment = dict(os.environ) if env is None else dict(os.fsdecode(each).split("=", 1) for each in env)
        folder = os.path.abspath(os.fsdecode(cwd) if cwd is not None else ".")
        asked = _understood(words, environment, folder), words, environment, folder
        return session, asked, [fd if fd != -1 else number for number, fd in enumerate((in_read, out_write, err_write))]

    def _fork(self, session, asked, fds):
        file = os.memfd_create("lockstep")
        os.write(file, pickle.dumps((session, asked)))
        os.lseek(file, 0, os.SEEK_SET)
        with self._lock:
            _libc.prctl(_SET_SUBREAPER, 1)
            socket.send_fds(self._channel, [b"+"], [*fds, file])
            pid = int(self._channel.recv(20))
            _libc.prctl(_SET_SUBREAPER, 0)
        os.close(file)
        return pid


# Lines of JSON.


def _descendants():
    """Of this process; those whose parents have died are its own children."""
    parents, found = {}, [os.getpid()]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        words = ownership.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if len(words) > 1 and words[0] != "Z":
            parents.setdefault(int(words[1]), []).append(int(pid))
    for pid in found:
        found += parents.get(pid, [])
    return found[1:]


class Server:
    def __init__(self):
        self._input, self._output = os.dup(0), os.dup(1)
        os.close(0)
        os.open(os.devnull, os.O_RDONLY)
        os.dup2(2, 1)
        self._runs, self._problem = {}, "nothing has been imported"  # of each process: id, and when it began

    def serve(self):
        rest = b""
        while True:
            ready = select.select([self._input], [], [], 0.02 if self._runs else None)[0]
            self._reap()
            data = os.read(self._input, 1 << 20) if ready else None
            if data == b"":
                return
            *lines, rest = (rest + (data or b"")).split(b"\n")
            for line in lines:
                self._obey(json.loads(line))

    def _answer(self, **what):
        os.write(self._output, (json.dumps(what) + "\n").encode())

    def _obey(self, asked):
        if "import" in asked:
            began, before = time.monotonic(), set(sys.modules)
            failed = load(asked["import"], asked.get("script"))
            self._problem = problem()
            _start.names, _start.bound = set(sys.modules), _bound() if not self._problem else _start.bound
            # Lightning's, which asks the environment when it is imported.
            _start.ranked = [each for module in _modules() if hasattr(each := vars(module).get("rank_zero_only"), "rank")]
            for each in list(weakref.finalize._registry):  # operators that are registered go with a process
                each.atexit &= getattr(each.peek()[1], "__module__", "") != "torch.library"
            gc.collect()
            gc.freeze()  # forked processes do not look through it
            seconds = round(time.monotonic() - began, 3)
            self._answer(imported=sorted(_start.names - before), seconds=seconds, failed=failed)
        elif "start" in asked:
            try:
                self._fork(asked["start"], asked["words"], asked["environment"], asked["folder"], asked["log"])
            except (Cannot, OSError) as why:
                self._answer(cannot=asked["start"], why=str(why))
        elif "modules" in asked:
            _start.learnt.seek(0)
            lines = map(json.loads, _start.learnt.read().splitlines())
            found = dict.fromkeys(name for line in lines for name in line)  # in the order of their imports
            inits = ("triton", "torch._inductor") if os.path.exists("/dev/nvidiactl") else ()  # CUDA, which no forked process could use then
            self._answer(modules=[name for name in found if name not in sys.modules and not name.startswith(inits)])

    def _fork(self, number, words, environment, folder, log):
        if self._problem:
            raise Cannot(self._problem)
        program = _understood(words, environment, folder)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        pid = os.fork()
        if not pid:
            os.setsid()
            os.close(self._input)
            os.close(self._output)
            _become(program, words, environment, folder, [0, file, file])
        os.close(file)
        self._runs[pid] = number, time.monotonic()
        self._answer(started=number, pid=pid)

    def _reap(self):
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid in self._runs:
                    number, began = self._runs.pop(pid)
                    if not self._runs:
                        self.kill()  # what a program has left running
                    by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                    code, seconds = 128 + by if by else os.WEXITSTATUS(status), round(time.monotonic() - began, 3)
                    self._answer(ended=number, code=code, signal=by, seconds=seconds)

    @staticmethod
    def kill():
        """All that it has started, and what these have."""
        until = time.monotonic() + 10
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < until:
                for pid in _descendants():
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
                time.sleep(0.005)


def main(started=True):
    """Serves what is asked on stdin; `started`: as a program, and not a copy of a process that has imported what it needs."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = _start.environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if started and not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder in which it was started
    if not started:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = _start.environment[name] = "1"
        sys.modules["torch"].set_num_threads(1)
    _libc.prctl(_SET_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    server = Server()
    try:
        server.serve()
    finally:
        server.kill()


if __name__ == "__main__":
    _start.learnt.close()
    from lockstep_probe import starter  # programs get a __main__ of their own

    starter.main()
