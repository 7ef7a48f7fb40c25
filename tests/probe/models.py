"""Small models and their samples. B = rows, T = positions of a row, D = width, V = words."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SAMPLES, FEATURES, CLASSES, POSITIONS, WORDS, WIDTH = 96, 12, 4, 6, 11, 8
_generator = torch.Generator().manual_seed(7)
X = torch.randn((SAMPLES, FEATURES), generator=_generator)
Y = torch.randint(0, CLASSES, (SAMPLES,), generator=_generator)
SERIES = torch.randn((SAMPLES, 3, 10), generator=_generator)
OTHER_SIDE = torch.randn((SAMPLES, FEATURES), generator=_generator)
TOKENS = torch.randint(0, WORDS, (SAMPLES, POSITIONS + 1), generator=_generator)
LENGTHS = torch.tensor([(2, 5, 6, 1, 3, 4, 6)[i % 7] for i in range(SAMPLES)])


def words_of(ids):
    return TOKENS[ids, :POSITIONS]


def next_words_of(ids):
    """[B, T]: the next word at each position that counts, else -100."""
    labels = TOKENS[ids, 1:].clone()
    labels[torch.arange(POSITIONS)[None] >= LENGTHS[ids][:, None]] = -100
    return labels


class Mlp(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.first = nn.Linear(FEATURES, 16)
        self.drop = nn.Dropout(dropout)
        self.second = nn.Linear(16, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.second(self.drop(torch.tanh(self.first(x))))))


class SometimesUnused(Mlp):
    """Skips the second layer where `skips`."""

    skips = False

    def forward(self, x):
        x = torch.tanh(self.first(x))
        return self.head(x if self.skips else torch.tanh(self.second(x)))


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 3)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.conv(x))).mean(2))


class Block(nn.Module):
    """Attention of two heads and a layer of two matrices; `heads` may be split over tensor ranks."""

    def __init__(self, heads=2):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.size = WIDTH // heads

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (f(h).unflatten(-1, (-1, self.size)).transpose(1, 2) for f in (self.q, self.k, self.v))
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        attention = (q @ k.transpose(2, 3) / self.size**0.5).masked_fill(mask, -1e9).softmax(-1) @ v
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(FEATURES, WIDTH), nn.Linear(FEATURES, WIDTH)

    def forward(self, x, y):
        return F.normalize(self.query(x), dim=1), F.normalize(self.key(y), dim=1)


def token_losses(logits, labels):
    """[B, T]: 0 where the label does not count."""
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=-100)
