"""Prints, for each optimiser setting, the bits of a parameter after each of 25 updates by Python's torch.optim.

Gradients are made of integers, so that C++ makes the same ones: g[i] = ((i * 37 + t * 11) % 101 - 50) / 64.
"""

import torch

torch.set_num_threads(1)
SETTINGS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "sgd_momentum_decay": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "adam_decay": lambda p: torch.optim.Adam(p, lr=1e-3, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01),
    "adam_clip": lambda p: torch.optim.Adam(p, lr=1e-3),
}
for name, make in SETTINGS.items():
    parameter = torch.nn.Parameter(((torch.arange(67) * 29) % 97 - 48).to(torch.float32) / 32)
    optimizer = make([parameter])
    for t in range(25):
        parameter.grad = (((torch.arange(67) * 37 + t * 11) % 101) - 50).to(torch.float32) / 64
        if name == "adam_clip":
            torch.nn.utils.clip_grad_norm_([parameter], 0.7)
        optimizer.step()
        print(name, t, " ".join(f"{bits & 0xFFFFFFFF:08x}" for bits in parameter.detach().view(torch.int32).tolist()))
