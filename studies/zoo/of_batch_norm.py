"""A small convolutional network with BatchNorm2d, as torchvision's are, under DistributedDataParallel."""

import torch
import torch.distributed as dist
import torch.distributed.nn

from subject import STEPS, Subject, distributed, main, share

ROWS, BATCH = 96, 24


class OverRanks(torch.nn.BatchNorm2d):
    """Batch statistics of all ranks, by differentiable sums: what SyncBatchNorm does where there is CUDA."""

    def forward(self, x):
        if not self.training or not dist.is_initialized():
            return super().forward(x)
        sums = torch.cat([x.sum((0, 2, 3)), torch.tensor([float(x.numel() // x.shape[1])], dtype=x.dtype)])
        sums = torch.distributed.nn.all_reduce(sums)
        count = sums[-1].detach()
        mean = sums[:-1] / count
        centred = x - mean[:, None, None]
        variance = torch.distributed.nn.all_reduce((centred * centred).sum((0, 2, 3))) / count
        with torch.no_grad():
            self.running_mean += self.momentum * (mean - self.running_mean)
            self.running_var += self.momentum * (variance * count / (count - 1) - self.running_var)
            self.num_batches_tracked += 1
        normal = centred / torch.sqrt(variance + self.eps)[:, None, None]
        return normal * self.weight[:, None, None] + self.bias[:, None, None]


def net(norm):
    torch.manual_seed(8)

    def block(c, d):
        return [torch.nn.Conv2d(c, d, 3, padding=1, bias=False), norm(d), torch.nn.ReLU()]

    return torch.nn.Sequential(*block(2, 4), *block(4, 6), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(6, 3))


def trained(norm=torch.nn.BatchNorm2d, buffers=True):
    draw = torch.Generator().manual_seed(12)
    x = torch.randn(ROWS, 2, 6, 6, generator=draw) * (1 + torch.arange(ROWS) % BATCH / 12)[:, None, None, None]
    y = (x.mean((2, 3)).sum(1) * 6).clamp(-1, 1).round().long() + 1
    model = distributed(net(norm), broadcast_buffers=buffers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(STEPS):
        rows = share([row + step * BATCH % ROWS for row in range(BATCH)])
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()


SUBJECTS = [
    Subject("convnet, BatchNorm2d", trained, {}, {}, ("batch-norm-local",), 0, "Lightning#6789; simclr#114"),
    Subject("convnet, BatchNorm2d, broadcast_buffers=False", trained, {"buffers": False}, {}, ("batch-norm-local",)),
    Subject("convnet, statistics over ranks by hand", trained, {"norm": OverRanks}),
]
if __name__ == "__main__":
    main(SUBJECTS)
