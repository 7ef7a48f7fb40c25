"""The probe of a model in which steps are replayed: there are no updates, and collectives are not the trainer's."""

import torch
import torch.distributed as dist

from lockstep_probe import ownership
from lockstep_probe.guard import guarded
from lockstep_probe.probe import Probe
from lockstep_probe.recorder import hash_in
from lockstep_probe.settings import Settings


class ReplayedProbe(Probe):
    """`of`: the probe of the training whose function is replayed."""

    def __init__(self, models, folder, of):
        super().__init__(models, [], Settings(out=folder, level="full"), declare=of.declared, own=of.own, rank=of.rank, world_size=of.world_size,
                         tier="replayed")  # fmt: skip
        self.replicas = of.replicas

    def _nothing(self, *_args, **_kwargs):
        """The training's probe does it; and the loss is what the function returns."""

    claim = open_heartbeat = listen_to_collectives = on_loss = after_loss = describe = _nothing

    @guarded
    def end_step(self):
        if self.by_hand:
            self._reduce()
        self.gradients.of_step(self.current)
        self.write()

    def _reduce(self):
        """Of a trainer that reduces by itself: what the replay function has reduced, or else the mean over ranks."""
        watched = [w for w in self.parameters if w.local is not None and w.parameter.grad is not None]
        together = next((ranks for ranks in self.replicas or () if self.rank in ranks), range(self.world_size))
        reduces = any(hash_in(self.gradients.record("local gradients", w, w.parameter.grad)) != hash_in(w.local) for w in watched)
        reduces = torch.tensor(reduces, dtype=torch.int32)
        dist.all_reduce(reduces, op=dist.ReduceOp.MAX)
        if not reduces and len(together) not in (1, self.world_size):
            return  # some of the ranks: how, the probe does not know
        for each in watched if not reduces and len(together) > 1 else ():
            dist.all_reduce(each.parameter.grad)
            if self.declared.get("gradient_reduction") != "sum":
                each.parameter.grad /= self.world_size
        self.gradients.reduced_by_hand(self.parameters.tensors())

    @guarded
    def close(self):
        self.finished = True
        ownership.not_at_end(self.finish)
        self.writer.finish(whole=True)
        self.is_off = True
