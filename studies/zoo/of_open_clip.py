"""open_clip's losses on two small towers under DistributedDataParallel; `open_clip/loss.py` alone, which needs no torchvision."""

import importlib.util
import os

import torch
from torch.nn.parallel import DistributedDataParallel

from subject import TEN, THREE, ZERO, Subject

LIBRARY = "open_clip_torch"


def _losses():
    folder = importlib.util.find_spec("open_clip").submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location("open_clip_loss", os.path.join(folder, "loss.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOSSES = _losses()
ROWS, BATCH = 96, 24


class Clip(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))
        self.text = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))
        self.logit_scale = torch.nn.Parameter(torch.tensor(1.0))
        self.logit_bias = torch.nn.Parameter(torch.tensor(-2.0))

    def forward(self, image, text, bias=False):
        image = torch.nn.functional.normalize(self.visual(image), dim=-1)
        text = torch.nn.functional.normalize(self.text(text), dim=-1)
        return image, text, self.logit_scale.exp(), self.logit_bias + 0.0 if bias else None


def _pairs():
    draw = torch.Generator().manual_seed(5)
    common = torch.randn(ROWS, 4, generator=draw)
    image = torch.cat([common, torch.randn(ROWS, 6, generator=draw)], 1)
    text = torch.cat([common * 0.5, torch.randn(ROWS, 3, generator=draw)], 1)
    return image, text


ROLES = [{"prefix": "visual", "role": "row encoder"}, {"prefix": "text", "role": "candidate encoder"}, {"prefix": "logit", "role": "temperature"}]


def clip(run, siglip=False, **flags):
    image, text = _pairs()
    torch.manual_seed(3)
    model = Clip()
    if not siglip:
        del model.logit_bias
        model.logit_bias = None
    run.begin(model)
    called = DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    make = LOSSES.SigLipLoss if siglip else LOSSES.ClipLoss
    loss_of = make(rank=run.rank, world_size=run.world, **flags)
    probe = run.attach(called, optimizer, declare={"parameters": ROLES})

    def features(model, rows):
        image_features, text_features, scale, bias = model(image[rows], text[rows], siglip)
        return (image_features, text_features, scale, bias) if siglip else (image_features, text_features, scale)

    def step_on(model, rows):
        loss = loss_of(*features(model, rows))
        loss.backward()
        return loss

    if run.lines == TEN:
        probe.replay(step_on)
    n = BATCH // run.world
    for step in range(run.steps):
        first = step * BATCH % ROWS + run.rank * n
        rows = list(range(first, first + n))
        probe.rows(rows, torch.cat([image[rows], text[rows]], 1))
        optimizer.zero_grad()
        loss = step_on(called, rows)
        optimizer.step()
        probe.step(loss)
    run.end(model)


GROUPS = {"image tower": ("visual",), "text tower": ("text",), "logit_scale": ("logit_scale",)}
FLAGS = {"layout": "24 pairs; 3 × 8", "groups": GROUPS, "lines": (ZERO, THREE, TEN)}
SUBJECTS = [
    Subject(LIBRARY, "ClipLoss, local_loss, gather_with_grad", clip, {"local_loss": True, "gather_with_grad": True}, **FLAGS),
    Subject(LIBRARY, "ClipLoss, gather_with_grad", clip, {"gather_with_grad": True}, **FLAGS),
    Subject(LIBRARY, "ClipLoss, no flag", clip, {}, expect=("gather-own-slice",), known="open_clip#616", **FLAGS),
    Subject(LIBRARY, "ClipLoss, local_loss", clip, {"local_loss": True}, expect=("gather-without-gradient", "candidates-detached"), known="open_clip#616", **FLAGS),
    Subject(LIBRARY, "SigLipLoss", clip, {"siglip": True}, {"siglip": True}, **FLAGS | {"groups": GROUPS | {"logit_bias": ("logit_bias",)}}),
]  # fmt: skip
