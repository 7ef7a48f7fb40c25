"""Faults of clipping, of the optimizer and of replicas."""

import torch

from planted import bit_flipped, planted
from twin import Fault


@planted("clip-on-local-norm")
class clip_local_norm(Fault):
    """reduced gradients are clipped by the norm of the rank's own ones"""

    def norm_for_clipping(self, t, norm):
        return torch.nn.utils.get_total_norm(list(t.last["local"].values())) if self.after(t) else norm


@planted("clip-missing")
class clip_missing(Fault):
    """gradients are not clipped"""

    def clip(self, t):
        return 0.0 if self.after(t) else t.s.clip


@planted("clip-twice")
class clip_twice_norm(Fault):
    """the norm of reduced gradients is summed over the ranks again"""

    def norm_for_clipping(self, t, norm):
        return norm * t.s.world**0.5 if self.after(t) else norm


@planted("weight-decay-missing", first=0)
class weight_decay_missing(Fault):
    """weight decay does not reach the optimizer"""

    def optimizer(self, t, parameters):
        return torch.optim.AdamW(parameters, lr=t.s.rate, weight_decay=0.0)


@planted("decay-coupled", first=0)
class decay_coupled(Fault):
    """AdamW asked for, Adam made"""

    def optimizer(self, t, parameters):
        return torch.optim.Adam(parameters, lr=t.s.rate, weight_decay=t.s.weight_decay)


@planted("update-differs", first=0, extra=True)
class adam_epsilon(Fault):
    """the optimizer's eps is 1e-4 where 1e-8 was meant"""

    def optimizer(self, t, parameters):
        return torch.optim.AdamW(parameters, lr=t.s.rate, weight_decay=t.s.weight_decay, eps=1e-4)


@planted("optimizer-state-lost")
class optimizer_state_lost(Fault):
    """the optimizer's moments are gone, at one step"""

    def before_update(self, t):
        if t.step == self.first:
            for state in t.optimizer.state.values():
                state["exp_avg"].zero_()
                state["exp_avg_sq"].zero_()


@planted("optimizer-counter-lost")
class optimizer_counter_lost(Fault):
    """the optimizer's count of updates begins anew, at one step"""

    def before_update(self, t):
        if t.step == self.first:
            for state in t.optimizer.state.values():
                state["step"].zero_()


@planted("parameter-not-updated", first=0, says="in no optimizer")
class parameter_not_updated(Fault):
    """one parameter is missing from the optimizer"""

    def optimizer(self, t, parameters):
        kept = [p for n, p in t.model.named_parameters() if n != t.target]
        return super().optimizer(t, kept)


@planted("initial-weights-differ", first=-1)
class initial_weights_differ(Fault):
    """every rank draws its own initial parameters and nobody broadcasts"""

    def initial(self, t):
        t.model.draw(t.s.seed + t.rank)

    def wrapping(self, t):
        return dict(init_sync=False)


@planted("replica-corrupted")
class weight_flip(Fault):
    """bit 24 of the first element of a parameter is flipped on a rank after an update, at one step"""

    def updated(self, t):
        if self.on(t) and t.step == self.first:
            bit_flipped(dict(t.model.named_parameters())[t.target].data, 24)


@planted("rank-behind", says="no optimizer step")
class rank_behind(Fault):
    """a rank skips the update of one step"""

    def updates(self, t):
        return not (self.on(t) and t.step == self.first)


@planted("buffers-not-synchronised", "norm", first=0)
class buffers_not_synchronised(Fault):
    """running statistics are those of each rank's own rows, and not broadcast"""

    def kept_statistics(self, t, x, weight, mean, var):
        own = (x * weight).sum((0, 1)) / weight.sum()
        return own.detach(), (((x - own) ** 2 * weight).sum((0, 1)) / weight.sum()).detach()

    def wrapping(self, t):
        return dict(broadcast_buffers=False)
