"""Small models and the samples that they are trained on. B = rows, T = positions of a row, V = words."""

import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

SAMPLES, WIDTH, CLASSES, POSITIONS, WORDS = 64, 6, 4, 8, 11
_generator = torch.Generator().manual_seed(7)
FEATURES = torch.randn((SAMPLES, WIDTH), generator=_generator)
CLASS = torch.randint(0, CLASSES, (SAMPLES,), generator=_generator)
SERIES = torch.randn((SAMPLES, 3, 10), generator=_generator)
TOKENS = torch.randint(0, WORDS, (SAMPLES, POSITIONS + 2), generator=_generator)
# Rows of unequal length, whatever the ranks and micro-steps; any eight samples in a row have 36 tokens together.
LENGTHS = torch.tensor([(2, 4, 8, 6, 5, 3, 7, 1)[i % 8] for i in range(SAMPLES)])


def step_ids(step, rows):
    """The samples of a step in order, over and over."""
    return [(step * rows + k) % SAMPLES for k in range(rows)]


def labels_of(ids):
    """The next word at each position that counts, else -100: [B, T]."""
    labels = TOKENS[ids, 1 : POSITIONS + 1].clone()
    labels[torch.arange(POSITIONS)[None] >= LENGTHS[ids][:, None]] = -100
    return labels


class Mlp(nn.Module):
    def __init__(self, width=8, dropout=0.0):
        super().__init__()
        self.first = nn.Linear(WIDTH, width)
        self.second = nn.Linear(width, width)
        self.head = nn.Linear(width, CLASSES)
        self.dropout = dropout

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = F.dropout(x, self.dropout, self.training and self.dropout > 0)
        return self.head(torch.tanh(self.second(x)))


class Conv(nn.Module):
    """A convolution over series, with BatchNorm of the rank's own rows."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 3)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.conv(x))).mean(2))


class Transformer(nn.Module):
    """One causal attention layer; the output is tied to the embedding."""

    def __init__(self, width=8):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(POSITIONS, width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        x = x + self.out(scores.masked_fill(torch.ones(POSITIONS, POSITIONS).triu(1).bool(), -1e9).softmax(-1) @ v)
        return self.norm(x + self.down(F.gelu(self.up(x)))) @ self.words.weight.t()


class PositionWise(nn.Module):
    """A language model without attention, so that a rank can compute its own positions alone. `heads`: words ahead."""

    def __init__(self, heads=1, width=8):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(POSITIONS, width)
        self.up = nn.Linear(width, width)
        self.heads = nn.ModuleList(nn.Linear(width, WORDS) for _ in range(heads))

    def forward(self, tokens, places):
        x = torch.tanh(self.up(self.words(tokens) + self.places(places)))
        return [head(x) for head in self.heads]


def token_losses(logits, labels):
    """[B, T]: 0 where the label does not count."""
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=-100)


class Copied(torch.autograd.Function):
    """Into tensor ranks: the gradients of their parts add up."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class Summed(torch.autograd.Function):
    """Out of tensor ranks."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient
