"""What the probe needs for other libraries' trainers, without them; and the runner's reading of verdicts."""

import importlib
import os
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "probe" / "python")]
for variable in [name for name in os.environ if name.startswith("LOCKSTEP_") and name != "LOCKSTEP_HASH"]:
    del os.environ[variable]

import torch  # noqa: E402

import lockstep_probe  # noqa: E402
import zoo  # noqa: E402
from lockstep_probe import led, loader, model, trace_file  # noqa: E402
from subject import Subject  # noqa: E402


class Bare(torch.optim.Optimizer):
    """As Accelerate's: calls itself an optimizer, and has none of its attributes."""

    def __init__(self, optimizer):
        self.optimizer = optimizer


class Sharing(torch.optim.Optimizer):
    """As Lightning's: shares the optimizer's attributes, and is not what its hooks get."""

    def __init__(self, optimizer):
        self.__dict__ = dict(optimizer.__dict__)
        self._optimizer = optimizer

    @property
    def optimizer(self):
        return self._optimizer


def traced(folder, wrap):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    probe = lockstep_probe.attach(net, wrap(optimizer), out=str(folder), rank=0, world_size=1)
    for step in range(3):
        optimizer.zero_grad()
        loss = net(torch.full((5, 3), 1.0 + step)).square().mean()
        loss.backward()
        optimizer.step()
    probe.finish()


class Optimizers(unittest.TestCase):
    def test_inside_others_are_found(self):
        with tempfile.TemporaryDirectory() as scratch:
            for kind in (Bare, Sharing):
                folder = pathlib.Path(scratch) / kind.__name__
                traced(folder, kind)
                steps = [step for step, _ in trace_file.read_steps(os.path.join(folder, "rank-0.trace"))]
                self.assertEqual(steps, [-1, 0, 1, 2], kind.__name__)

    def test_that_call_a_closure_have_its_gradients(self):
        with tempfile.TemporaryDirectory() as scratch:
            torch.manual_seed(1)
            net = torch.nn.Linear(3, 2)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            probe = lockstep_probe.attach(net, optimizer, out=scratch, rank=0, world_size=1)
            for way in ("position", "keyword"):
                def closure():
                    optimizer.zero_grad()
                    loss = net(torch.ones(5, 3)).square().mean()
                    loss.backward()
                    return loss

                optimizer.step(closure) if way == "position" else optimizer.step(closure=closure)
            probe.finish()
            steps = dict(trace_file.read_steps(os.path.join(scratch, "rank-0.trace")))
            self.assertEqual(sorted(steps), [-1, 0, 1])
            for step in (0, 1):
                kept = {(r.phase, r.name): r.values for r in steps[step]}
                reduced, applied = trace_file.PHASES["reduced gradients"], trace_file.PHASES["applied gradients"]
                self.assertTrue(torch.equal(kept[reduced, "weight"], kept[applied, "weight"]), step)


class Lightning(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))

    def training_step(self, x):
        return self.net(x).square().mean()


class Steps(unittest.TestCase):
    def test_begin_before_a_training_step(self):
        with tempfile.TemporaryDirectory() as scratch:
            module = Lightning()
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            probe = lockstep_probe.attach(module, optimizer, out=scratch, rank=0, world_size=1)
            data = torch.utils.data.TensorDataset(torch.randn(8, 3))
            for (x,) in torch.utils.data.DataLoader(data, batch_size=4):
                optimizer.zero_grad()
                module.training_step(x).backward()
                optimizer.step()
            probe.finish()
            steps = dict(trace_file.read_steps(os.path.join(scratch, "rank-0.trace")))
        mean = next(r.values for r in steps[-1] if r.name == "buffer/net.0.running_mean")
        self.assertEqual(float(mean.abs().max()), 0)
        self.assertEqual([next(r.ids for r in steps[k] if r.name == "samples") for k in (0, 1)], [(0, 1, 2, 3), (4, 5, 6, 7)])


class Names(unittest.TestCase):
    def test_are_those_without_a_wrapper_within_a_loss(self):
        loss = torch.nn.Module()
        loss.model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
        names = [name for name, _ in model.plain_names(loss, loss.named_parameters())]
        self.assertEqual(names, ["model.weight", "model.bias"])

    def test_keep_a_module_of_that_name(self):
        inner = torch.nn.ModuleDict({"module": torch.nn.Linear(2, 2)})
        self.assertEqual([n for n, _ in model.plain_names(inner, inner.named_parameters())], ["module.weight", "module.bias"])


class Loader(unittest.TestCase):
    def test_finds_the_ids_of_a_batch_that_was_copied(self):
        data = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(8, 1))
        early = iter(torch.utils.data.DataLoader(data, batch_size=4))
        loader.install()
        batches = list(torch.utils.data.DataLoader(data, batch_size=4))
        self.assertEqual(loader.ids_of([batches[0][0].clone()], 1, []), [0, 1, 2, 3])
        self.assertEqual(loader.ids_of([batches[1][0]], 1, []), [4, 5, 6, 7])
        self.assertEqual(loader.ids_of([batches[0][0] + 9], 1, []), [])
        self.assertEqual(len(list(early)), 2, "an iterator that is older than the probe")


class Line(unittest.TestCase):
    """One line of a framework's, of which nothing is here but the names."""

    def tearDown(self):
        loader.content_of = None
        for name in ("transformers", "lightning", "accelerate"):
            sys.modules.pop(f"lockstep_probe.{name}", None)

    def lines(self):
        kinds = {name: type(name, (), {}) for name in ("TrainerCallback", "Callback", "Accelerator")}
        names = ("transformers", "lightning", "lightning.pytorch", "accelerate")
        with unittest.mock.patch.dict(sys.modules, {name: types.SimpleNamespace(**kinds) for name in names}):
            return [getattr(lockstep_probe, name) for name in names if "." not in name], kinds["Accelerator"]()

    @staticmethod
    def accelerate(accelerator):
        return unittest.mock.patch.dict(sys.modules, accelerate=types.SimpleNamespace(Accelerator=type(accelerator)))

    def test_does_something_in_a_check_alone(self):
        for where in ({}, {"LOCKSTEP_TRACE": "a folder"}):
            (transformers, lightning, accelerate), accelerator = self.lines()
            watch = lambda: accelerate.watch(accelerator)  # noqa: E731
            begin = lambda: transformers.Callback().on_train_begin(1, 2, 3)  # noqa: E731
            with unittest.mock.patch.dict(os.environ, where), self.accelerate(accelerator):
                for line in (begin, lambda: lightning.Callback().on_fit_start(1, 2), watch):
                    loader.content_of = None
                    line()
                    self.assertEqual(loader.content_of is not None, bool(where))
                self.assertIs(watch(), accelerator)

    def test_says_what_is_wrong(self):
        (transformers, lightning, accelerate), accelerator = self.lines()
        with self.assertRaisesRegex(TypeError, "none of Lightning's; that is lockstep_probe.lightning"):
            transformers.Callback().setup("a trainer", "a module", stage="fit")
        with self.assertRaisesRegex(TypeError, "use lockstep_probe.transformers"):
            lightning.Callback().on_init_end(1, 2, 3)
        with self.accelerate(accelerator), self.assertRaisesRegex(TypeError, "Accelerator; found .*Linear"):
            accelerate.watch(torch.nn.Linear(1, 1))
        self.tearDown()
        none = unittest.mock.patch.dict(sys.modules, transformers=None)
        with none, self.assertRaisesRegex(ModuleNotFoundError, "needs transformers, which"):
            importlib.import_module("lockstep_probe.transformers")


class LedRows(unittest.TestCase):
    def rows(self, count):
        rows = led.Rows(types.SimpleNamespace(settings=types.SimpleNamespace(led_by="a reference"), world_size=3))
        rows._reference = [{"rows": count, "flow": list(range(count)), "ranks": [list(range(count))]}]
        return rows, torch.utils.data.DataLoader(range(count))

    def test_of_a_shorter_last_batch_are_behind_those_of_other_ranks(self):
        rows, data = self.rows(22)
        rows.turn = lambda: (2, 3)
        self.assertEqual([rows.given(data, [0] * 4), rows.given(data, [0] * 2)], [[8, 9, 10, 11], [20, 21]])

    def test_of_a_loader_that_loads_for_all_ranks_are_all(self):
        rows, data = self.rows(8)
        dispatching = types.SimpleNamespace(active_dataloader=type("DataLoaderDispatcher", (), {})())
        with unittest.mock.patch.dict(sys.modules, {"accelerate.state": types.SimpleNamespace(GradientState=lambda: dispatching)}):
            self.assertEqual([rows.given(data, [0, 1]), rows.given(data, [2, 3])], [[0, 1], [2, 3]])


class Reading(unittest.TestCase):
    def test_verdicts_are_read_by_what_should_be(self):
        found = zoo.said({"verdict": "different", "headline": "different from step 0: mean-of-means", "facts": [{"name": "loss"}]})
        self.assertEqual((found["step"], found["code"]), (0, "mean-of-means"))
        self.assertIsNone(zoo.said({"verdict": "different", "headline": "different from step 3: loss", "facts": [{"name": "loss"}]})["code"])
        right, differs = Subject("n", None), Subject("n", None, expect=("mean-of-means",))
        same = zoo.said({"verdict": "same", "headline": "the same: 3 ranks as 1 rank"})
        self.assertEqual([zoo.reading(right, same), zoo.reading(differs, same), zoo.reading(right, found)], ["same", "unseen", "alarm"])
        self.assertEqual([zoo.reading(differs, found | more) for more in ({}, {"code": None}, {"code": "label-offset"}, {"step": 4}, {"verdict": "undecided"})],
                         ["named", "unnamed", "wrong", "wrong step", "undecided"])  # fmt: skip


if __name__ == "__main__":
    unittest.main()
