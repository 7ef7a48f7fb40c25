"""Faults of samples, of random draws and of control values."""

import torch
import torch.distributed as dist

from planted import STEP, planted
from twin import Fault


@planted("set-epoch-forgotten", first=4)
class set_epoch_forgotten(Fault):
    """the sampler is not told the epoch"""

    def epoch(self, t, epoch):
        return 0


@planted("shards-identical", first=0, says="overlap")
class shards_identical(Fault):
    """every rank takes the shard of rank 0"""

    def shard(self, t):
        return dict(rank=0, seed=t.s.seed)


@planted("shards-overlap sample-duplicated", first=STEP, says="overlap")
class shard_overlap(Fault):
    """the last row of a rank is the first one of the next rank"""

    def ids(self, t, ids, later):
        if not self.after(t) or t.s.world == 1:
            return ids
        first = [torch.empty(1, dtype=torch.int64) for _ in range(t.s.world)]
        dist.all_gather(first, torch.tensor(ids[:1]))
        return ids[:-1] + [int(first[(t.rank + 1) % t.s.world])]


@planted("sample-duplicated", says="duplicate")
class sample_duplicated(Fault):
    """a row of a rank occurs twice and displaces another, at one step"""

    def ids(self, t, ids, later):
        return ids[:1] + ids[:1] + ids[2:] if self.on(t) and t.step == self.first else ids


@planted("sample-replaced sample-dropped")
class sample_replaced(Fault):
    """one row holds a sample that the sampler did not give, at one step"""

    def ids(self, t, ids, later):
        return later[t.step + 1][:1] + ids[1:] if self.on(t) and t.step == self.first else ids


@planted("rank-behind-data", first=1)
class rank_behind_data(Fault):
    """a rank's loader lags one step behind"""

    def ids(self, t, ids, later):
        return later[t.step - 1] if self.on(t) and self.after(t) else ids


@planted("sampler-seed-differs", first=0)
class sampler_seed_differs(Fault):
    """a rank shuffles by another seed"""

    def shard(self, t):
        return dict(rank=t.rank, seed=t.s.seed + (1 if self.on(t) else 0))


@planted("sample-content")
class sample_content(Fault):
    """a row has the right id and another sample's content, at one step"""

    def content(self, t, ids):
        return [ids[0] + 1] + ids[1:] if self.on(t) and t.step == self.first else ids




@planted("same-stream-on-all-ranks", first=0)
class same_noise(Fault):
    """one seed on all ranks and dropout by place: ranks draw the same masks"""

    def mask_key(self, t, i, place):
        return t.s.seed, place


@planted("stream-keyed-by-rank", first=0)
class noise_by_rank(Fault):
    """dropout of seed + rank, by place: draws depend on the layout"""

    def mask_key(self, t, i, place):
        return t.s.seed + t.rank, place


@planted("draws-missing", first=0)
class dropout_off(Fault):
    """a replica left in evaluation mode: no dropout"""

    def masked(self, t):
        return not self.on(t)


@planted("scheduler-stepped-per-rank", first=1, says="learning rate")
class scheduler_per_rank(Fault):
    """the schedule is stepped once per rank instead of once per step"""

    def rate(self, t):
        return t.s.rate * 0.99 ** (t.step * t.s.world)


@planted("rate-scaled-linear", first=0, says="learning rate")
class rate_linear(Fault):
    """the learning rate times the world size, at the same rows a step"""

    def rate(self, t):
        return super().rate(t) * t.s.world


@planted("rate-not-applied", says="learning rate", extra=True)
class rate_on_one_rank(Fault):
    """a rank's optimizer takes half the learning rate that is set"""

    def before_update(self, t):
        if self.on(t) and self.after(t):
            t.optimizer.param_groups[0]["lr"] *= 0.5
