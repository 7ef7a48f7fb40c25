"""Faults of local gradients and of their reduction."""

import torch.distributed as dist

from planted import bit_flipped, planted
from twin import Fault


@planted("bit-flip")
class flip_bit(Fault):
    """bit 24 of the first element of a local gradient is flipped on a rank, at one step"""

    def local(self, t, grads):
        if self.on(t) and t.step == self.first and t.target in grads:
            bit_flipped(grads[t.target], 24)


@planted("")
class grad_scale(Fault):
    """all local gradients times 1.01"""

    def local(self, t, grads):
        if self.after(t):
            for g in grads.values():
                g.mul_(1.01)


@planted("", extra=True)
class grad_scale_slightly(Fault):
    """all local gradients times 1.000001"""

    def local(self, t, grads):
        if self.after(t):
            for g in grads.values():
                g.mul_(1.000001)


@planted("non-finite", says="(?i)nan|non-finite")
class nan_gradient(Fault):
    """the first element of a local gradient is not a number on a rank, at one step"""

    def local(self, t, grads):
        if self.on(t) and t.step == self.first and t.target in grads:
            grads[t.target].view(-1)[0] = float("nan")


@planted("sign-flipped")
class sign_flipped(Fault):
    """all gradients have the wrong sign"""

    def local(self, t, grads):
        if self.after(t):
            for g in grads.values():
                g.neg_()


@planted("gradient-times-world")
class gradient_times_world(Fault):
    """local gradients times the world size although the loss is right"""

    def local(self, t, grads):
        if self.after(t):
            for g in grads.values():
                g.mul_(t.s.world)


@planted("gradient-over-world")
class gradient_over_world(Fault):
    """local gradients over the world size although the loss is right"""

    def local(self, t, grads):
        if self.after(t):
            for g in grads.values():
                g.div_(t.s.world)


@planted("accumulation-not-scaled", "accumulated", first=0, says="isn't divided|loss_accounting")
class accumulation_not_scaled(Fault):
    """micro-steps are added up without dividing by their number"""

    def loss(self, t, loss):
        return loss * t.s.accumulation


@planted("gradients-not-zeroed", says="zero_grad")
class gradients_not_zeroed(Fault):
    """gradients of the step before are not cleared"""

    def zero(self, t):
        if not self.after(t):
            super().zero(t)




@planted("gradient-not-reduced", first=0)
class past_the_reducer(Fault):
    """the forward pass bypasses the wrapper: gradients are not reduced"""

    def wrapped(self, t):
        return t.model


@planted("parameter-not-reduced", first=0, says="head.weight")
class parameter_not_reduced(Fault):
    """one parameter is not registered with the reducer"""

    def unwatched(self, t):
        return [t.target]


@planted("gradient-sum-not-mean")
class gradient_sum(Fault):
    """gradients are summed over the ranks and not divided"""

    def reduce(self, t, buffer):
        return super().reduce(t, buffer).mul_(t.s.world if self.after(t) else 1)


@planted("mean-taken-twice")
class mean_taken_twice(Fault):
    """gradients are divided by the world size twice"""

    def reduce(self, t, buffer):
        return super().reduce(t, buffer).div_(t.s.world if self.after(t) else 1)


@planted("divided-by-wrong-world")
class divided_by_wrong_world(Fault):
    """the sum is divided by a world size with one rank more"""

    def reduce(self, t, buffer):
        return super().reduce(t, buffer).mul_(t.s.world / (t.s.world + 1) if self.after(t) else 1)


@planted("clip-before-reduction")
class clip_before_reduction(Fault):
    """every rank clips its own gradients before they are reduced, and none after"""

    def local(self, t, grads):
        pass

    def reduce(self, t, buffer):
        if self.after(t):
            buffer.mul_((t.s.clip / (buffer.norm() + 1e-6)).clamp(max=1.0))
        return super().reduce(t, buffer)

    def clip(self, t):
        return 0.0 if self.after(t) and t.s.world > 1 else t.s.clip


@planted("wrong-reduction-op")
class wrong_gradient_op(Fault):
    """the reduction takes the largest value instead of the mean"""

    def reduce(self, t, buffer):
        if not self.after(t):
            return super().reduce(t, buffer)
        dist.all_reduce(buffer, op=dist.ReduceOp.MAX)
        return buffer


@planted("reduced-in-low-precision")
class low_precision_reduction(Fault):
    """gradients are sent, and arrive, as bfloat16"""

    def reduce(self, t, buffer):
        if not self.after(t):
            return super().reduce(t, buffer)
        sent = (buffer / t.s.world).bfloat16()
        dist.all_reduce(sent)
        return buffer.copy_(sent.float())


@planted("stale-gradient")
class stale_gradient(Fault):
    """a rank sends the gradients of the step before"""

    def reduce(self, t, buffer):
        own, t.sent = buffer.clone(), getattr(t, "sent", None)
        if self.on(t) and self.after(t) and t.sent is not None:
            buffer.copy_(t.sent)
        t.sent = own
        return super().reduce(t, buffer)


@planted("message-corrupted")
class gradient_message_flip(Fault):
    """bit 24 of the first element of a reduced gradient is flipped on a rank, at one step"""

    def reduce(self, t, buffer):
        buffer = super().reduce(t, buffer)
        if self.on(t) and t.step == self.first:
            bit_flipped(buffer, 24)
        return buffer


@planted("rank-missing")
class rank_missing(Fault):
    """zeros stand in for a rank's contribution"""

    def reduce(self, t, buffer):
        return super().reduce(t, buffer.zero_() if self.on(t) and self.after(t) else buffer)


@planted("rank-counted-twice")
class rank_counted_twice(Fault):
    """a rank's contribution is added twice"""

    def reduce(self, t, buffer):
        return super().reduce(t, buffer.mul_(2) if self.on(t) and self.after(t) else buffer)
