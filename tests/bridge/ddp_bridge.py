"""The energy trainer under PyTorch's own DistributedDataParallel, for comparison with emulated ranks.

Same model, same data order, same seeds: what users run in Python must give the bits that lockstep gives. Reads the
training windows and the parameters after every step as raw float32 files, trains V real processes on Gloo, and says at
which step and parameter the bits first differ.

usage: ddp_bridge.py JSON   (keys: see tests/harness/trainers/core/bridge_test.cpp)
"""

import json
import math
import os
import struct
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

MASK64 = (1 << 64) - 1
MASK32 = 0xFFFFFFFF


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def scramble(x):
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & MASK32
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & MASK32
    return x ^ (x >> 16)


def normals(radius, angle):
    """Box and Muller with the C library's logarithm and cosine in float64, rounded once to float32."""
    pairs = zip(radius.flatten().tolist(), angle.flatten().tolist())
    values = [math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(2.0 * math.pi * v) for u, v in pairs]
    return torch.tensor(values, dtype=torch.float64).float().reshape(radius.shape)


def uniform(key, n):
    low, high = key & MASK32, key >> 32
    position = torch.arange(n, dtype=torch.int64)
    bits = scramble(scramble((position * 0x9E3779B9 + low) & MASK32) ^ high)
    return (bits >> 8).to(torch.float32) * (2.0**-24)


class Streams:
    NOISE, DROPOUT = 1, 2

    def __init__(self, mode, seed, rank):
        self.mode, self.base = mode, mix((seed + (rank if mode == "plus_rank" else 0)) & MASK64)

    def row(self, purpose, step, sample, local):
        who = sample if self.mode == "keyed" else local
        return mix(mix(mix(self.base ^ purpose) ^ step) ^ who)

    def pair(self, row_key, sample, local):
        return mix(row_key ^ mix(sample if self.mode == "keyed" else local))


class Energy(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        generator = torch.Generator().manual_seed(c["seed"])
        self.names, values = [], {}

        def draw(name, shape, fan_in):
            bound = 1.0 / math.sqrt(fan_in)
            value = torch.empty(shape).uniform_(-bound, bound, generator=generator)
            self.add(name, value)

        C, D, W, S = c["channels"], 32, 64, c["context_steps"]
        A = c["action_steps"] * C
        draw("context_encoder.in.weight", (D, C), C)
        draw("context_encoder.in.bias", (D,), C)
        draw("context_encoder.place", (S, D), D)
        draw("context_encoder.out.weight", (D, D), D)
        draw("context_encoder.out.bias", (D,), D)
        draw("context_encoder.summary_in.weight", (W, S * C), S * C)
        draw("context_encoder.summary_in.bias", (W,), S * C)
        draw("context_encoder.summary_out.weight", (D, W), W)
        draw("action_encoder.in.weight", (W, A), A)
        draw("action_encoder.in.bias", (W,), A)
        draw("action_encoder.out.weight", (D, W), W)
        draw("action_encoder.out.bias", (D,), W)
        draw("energy_head.query.weight", (D, D), D)
        draw("energy_head.key.weight", (D, D), D)
        draw("energy_head.hidden.weight", (W, 3 * D), 3 * D)
        draw("energy_head.hidden.bias", (W,), 3 * D)
        draw("energy_head.energy.weight", (1, W), W)
        draw("energy_head.energy.bias", (1,), W)
        self.add("temperature.log_tau", torch.full((), math.log(c["temperature"])))

    def add(self, name, value):
        self.names.append(name)
        self.register_parameter(name.replace(".", "__"), torch.nn.Parameter(value))

    def p(self, name):
        return getattr(self, name.replace(".", "__"))

    def forward(self, context, mask, action, dropout, target):
        linear = torch.nn.functional.linear
        p = self.p
        seen = torch.where(mask.unsqueeze(2), context, 0.0)
        step = torch.tanh(linear(seen, p("context_encoder.in.weight"), p("context_encoder.in.bias"))
                          + p("context_encoder.place"))
        whole = torch.tanh(linear(seen.flatten(1), p("context_encoder.summary_in.weight"),
                                  p("context_encoder.summary_in.bias")))
        steps = linear(step, p("context_encoder.out.weight"), p("context_encoder.out.bias"))
        summary = linear(whole, p("context_encoder.summary_out.weight")).unsqueeze(1)
        encoded = linear(torch.tanh(linear(action, p("action_encoder.in.weight"), p("action_encoder.in.bias"))),
                         p("action_encoder.out.weight"), p("action_encoder.out.bias"))
        key = linear(steps, p("energy_head.key.weight"))
        query = linear(encoded, p("energy_head.query.weight"))
        score = torch.matmul(key, query.t()) * (1.0 / math.sqrt(32.0))
        score = torch.where(mask.unsqueeze(2), score, -math.inf)
        weight = torch.softmax(score, 1).transpose(1, 2)
        found = torch.bmm(weight, steps) + summary
        wide = encoded.unsqueeze(0).expand_as(found)
        both = torch.cat([found, wide, found * wide], 2)
        hidden = torch.nn.functional.silu(linear(both, p("energy_head.hidden.weight"), p("energy_head.hidden.bias")))
        hidden = hidden * dropout
        energy = linear(hidden, p("energy_head.energy.weight"), p("energy_head.energy.bias")).squeeze(2)
        logits = -energy / torch.exp(p("temperature.log_tau"))
        positive = logits.gather(1, target.unsqueeze(1)).squeeze(1)
        rows = torch.logsumexp(logits, 1) - positive
        return rows.sum() * self.c["row_weight"]


def floats(path, shape):
    return torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.float32).reshape(shape)


def train(rank, c, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=c["world_size"])
    V, B, S, C = c["world_size"], c["rows_per_rank"], c["context_steps"], c["channels"]
    A = c["action_steps"] * C
    contexts = floats(c["contexts"], (-1, S, C))
    actions = floats(c["actions"], (-1, A))
    masks = torch.frombuffer(bytearray(open(c["masks"], "rb").read()), dtype=torch.uint8).reshape(-1, S).bool()
    total = V * B
    c["row_weight"] = V / total
    model = Energy(c)
    ddp = DistributedDataParallel(model, bucket_cap_mb=c["bucket_cap_bytes"] / 1048576 if c["bucket_cap_bytes"] else None)
    if c["optimizer"] == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=c["lr"])
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=c["lr"])
    streams = Streams(c["rank_seed"], c["seed"], rank)
    sampler = DistributedSampler(range(len(contexts)), V, rank, shuffle=True, seed=c["seed"], drop_last=True)
    loader = DataLoader(torch.arange(len(contexts)), batch_size=B, sampler=sampler, drop_last=True)
    expected = open(c["parameters"], "rb")
    step, epoch = 0, 0
    while step < c["steps"]:
        sampler.set_epoch(epoch)
        for ids in loader:
            if step == c["steps"]:
                break
            own = actions.index_select(0, ids)
            if c["negatives"] == "global":
                gathered = [torch.empty_like(own) for _ in range(V)]
                dist.all_gather(gathered, own)
                all_ids = [torch.empty_like(ids) for _ in range(V)]
                dist.all_gather(all_ids, ids)
                action, columns, offset = torch.cat(gathered), torch.cat(all_ids), rank * B
            else:
                action, columns, offset = own, ids, 0
            noise = torch.stack([uniform(streams.row(Streams.NOISE, step, int(i), k), 2 * S * C)
                                 for k, i in enumerate(ids)]).reshape(B, 2, S * C)
            normal = normals(noise.select(1, 0), noise.select(1, 1))
            context = contexts.index_select(0, ids) + c["context_noise"] * normal.reshape(B, S, C)
            p = struct.unpack("f", struct.pack("f", c["dropout"]))[0]
            kept = (torch.tensor(1.0) / (torch.tensor(1.0) - torch.tensor(p))).item()
            dropout = torch.stack([
                torch.stack([torch.where(uniform(streams.pair(streams.row(Streams.DROPOUT, step, int(i), k), int(j), n), 64)
                                         < p, 0.0, kept) for n, j in enumerate(columns)])
                for k, i in enumerate(ids)])
            optimizer.zero_grad()
            target = torch.arange(offset, offset + B)
            loss = ddp(context, masks.index_select(0, ids), action, dropout, target)
            loss.backward()
            if c["clip_norm"] > 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), c["clip_norm"])
            optimizer.step()
            for name, parameter in zip(model.names, model.parameters()):
                mine = bytes(parameter.detach().contiguous().view(torch.uint8).flatten().tolist()) if parameter.dim() \
                    else struct.pack("f", parameter.item())
                theirs = expected.read(len(mine))
                if mine != theirs:
                    print(f"differs at step {step}, rank {rank}, parameter {name}", flush=True)
                    sys.exit(1)
            step += 1
        epoch += 1
    if rank == 0:
        print(f"identical over {step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
        mp.spawn(train, args=(settings, os.path.join(folder, "store")), nprocs=settings["world_size"])
