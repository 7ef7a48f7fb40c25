"""pytest: tests whose body runs on several ranks, and passes if it trains the same on each number of them.

    @pytest.mark.ranks(1, 2, 3)
    def test_trains_alike(train):
        model, optimizer = make(train)
        for ids, x, y in train.batches(data, rows=24):
            loss = F.cross_entropy(model(x), y)
            loss.backward(); optimizer.step(); optimizer.zero_grad()

Each rank sets the test's fixtures up by itself. With compare=False nothing is judged but the body's own assertions.
"""

import os

import pytest

_forker = None
_KNOWN = ("rows", "steps", "timeout", "accept", "compare")


def pytest_addoption(parser):
    parser.getgroup("ranks").addoption("--gpu", action="store_true", help="ranks of marked tests see the GPUs (else they are hidden)")


def pytest_configure(config):
    config.addinivalue_line("markers", "ranks(1, 2, ..., rows=24, steps=8, timeout=30, accept=(), compare=True): "
                            "the body trains the same on each number of ranks; compare=False: it passes there")  # fmt: skip


@pytest.fixture
def train():
    """This rank's `lockstep_probe.ranks.Train`."""
    from lockstep_probe import ranks

    return ranks.current or ranks.Train()


def pytest_collection_finish(session):
    """All that tests import is there now, and nothing has been computed: the copy that ranks are forked from is made here."""
    global _forker
    marked = [item for item in session.items if item.get_closest_marker("ranks")]
    if not marked or session.config.option.collectonly:
        return
    from lockstep_probe import ranks

    if ranks.current is not None:
        return
    for number, item in enumerate(marked):
        item.lockstep_name = f"test-{number}"
        ranks.bodies[item.lockstep_name] = lambda _, item=item: _run(item)
    _forker = ranks.Forker()


def pytest_unconfigure():
    if _forker:
        _forker.close()


def _run(item):
    """In a rank: the test with its fixtures."""
    from _pytest.runner import runtestprotocol

    from lockstep_probe import ranks

    manager = item.config.pluginmanager
    for name in ("capturemanager", "terminalreporter", "faulthandler"):
        plugin = manager.get_plugin(name)
        if plugin is not None:
            manager.unregister(plugin)
    item.config.option.runxfail = item.get_closest_marker("xfail") is not None  # what is marked is judged where pytest runs
    failed = 0
    for report in runtestprotocol(item, log=False, nextitem=None):
        if report.skipped:
            ranks.leave(report.longrepr[2] if isinstance(report.longrepr, tuple) else f"xfail: {report.wasxfail}", "skipped")
        elif report.failed and not failed:
            ranks.leave(report.longreprtext)
            failed = 1
    if failed:
        raise RuntimeError(f"{item.nodeid} failed")


def _call(item):
    """In a rank: the body, until the probe has seen as many steps as it was asked for."""
    try:
        item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
    except SystemExit as end:
        if end.code not in (0, None) or "LOCKSTEP_TRACE" not in os.environ:
            raise
    return True


def _alone(item):
    """Of a pytest that runs this test and no other, in a rank that is a new interpreter."""
    config, by_name = item.config, item.config.pluginmanager.get_plugin("lockstep_probe.pytest_plugin")
    words = [item.nodeid, "--rootdir", str(config.rootpath), "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return words + (["-c", str(config.inipath)] if config.inipath else []) + (["-p", by_name.__name__] if by_name else [])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    from lockstep_probe import ranks

    marker = pyfuncitem.get_closest_marker("ranks")
    if marker is None:
        return None
    if ranks.current is not None:
        return _call(pyfuncitem)
    options = dict(marker.kwargs)
    compare, wrong = options.pop("compare", True), set(options) - set(_KNOWN)
    numbers = (1, *marker.args) if compare and len(marker.args) == 1 else marker.args
    if not numbers or not all(isinstance(each, int) and each > 0 for each in numbers) or wrong:
        pytest.fail(f"pytest.mark.ranks takes numbers of ranks, and {', '.join(_KNOWN)}; "
                    f"found {', '.join([*map(repr, marker.args), *(f'{name}={value!r}' for name, value in marker.kwargs.items())])}",
                    pytrace=False)  # fmt: skip
    config, name = pyfuncitem.config, pyfuncitem.lockstep_name
    folder = config._tmp_path_factory.mktemp("ranks")
    options.update(gpu=config.option.gpu, alone=_alone(pyfuncitem))
    for other in numbers[bool(compare) :]:
        out = folder / (f"{numbers[0]}-{other}" if compare else str(other))
        found = _forker.check(name, (numbers[0], other), out, **options) if compare else _forker.run(name, other, out, **options)
        if found.skipped is not None:
            (pytest.xfail if found.skipped.startswith("xfail") else pytest.skip)(found.skipped.removeprefix("xfail: "))
        if not found.good:
            head = f"{numbers[0]} against {other} ranks" if compare else f"on {other} ranks"
            pytest.fail(f"{head}\n{found.text}\n\nall of it: {out}", pytrace=False)
    return True
