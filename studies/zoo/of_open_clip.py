"""open_clip's losses on two small towers under DistributedDataParallel; `open_clip/loss.py` alone, which needs no torchvision."""

import importlib.util
import os

import torch

from subject import RANK, STEPS, WORLD, Subject, distributed, main, share


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


def clip(siglip=False, **flags):
    image, text = _pairs()
    torch.manual_seed(3)
    model = Clip()
    if not siglip:
        del model.logit_bias
        model.logit_bias = None
    model = distributed(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    loss_of = (LOSSES.SigLipLoss if siglip else LOSSES.ClipLoss)(rank=RANK, world_size=WORLD, **flags)
    for step in range(STEPS):
        rows = share([row + step * BATCH % ROWS for row in range(BATCH)])
        optimizer.zero_grad()
        loss_of(*model(image[rows], text[rows], siglip)[: 3 + siglip]).backward()
        optimizer.step()


SUBJECTS = [
    Subject("ClipLoss, local_loss, gather_with_grad", clip, {"local_loss": True, "gather_with_grad": True}),
    Subject("ClipLoss, gather_with_grad", clip, {"gather_with_grad": True}),
    Subject("ClipLoss, no flag", clip, {}, {}, ("gather-own-slice",), 0, "open_clip#616"),
    Subject("ClipLoss, local_loss", clip, {"local_loss": True}, {}, ("gather-without-gradient", "candidates-detached"), 0, "open_clip#616"),
    Subject("SigLipLoss", clip, {"siglip": True}, {"siglip": True}),
]
if __name__ == "__main__":
    main(SUBJECTS)
