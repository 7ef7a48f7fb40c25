"""What a step's rows hold and lose, by the DataLoader's batches and by the loss that backward() begins with.

Asked for by a framework's one line (`transformers`, `lightning`, `accelerate`); else nothing of this runs.
"""

import collections
import contextlib
import functools
import importlib
import os

import torch
import torch.nn.functional as F

from lockstep_probe import loader
from lockstep_probe.guard import guarded

_LABELS = ("labels", "label", "targets", "target", "y")
_MOST_NODES = 64  # of a loss's graph, from the loss on
_ROUNDING = 1e-5  # of a loss that is made of its rows' alone


def framework(*names):
    """The first of these that is installed. Raises ModuleNotFoundError that says what is missing."""
    for name in names:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    raise ModuleNotFoundError(f"this line of lockstep_probe needs {' or '.join(names)}, which cannot be imported here")


def ask():
    """Does nothing where neither `lockstep check` nor `lockstep trace` has started the process."""
    if os.environ.get("LOCKSTEP_TRACE"):
        loader.content_of = _content


def _content(batch, count):
    """(inputs, labels) of a batch of that many rows; None for what is not clear."""
    named = batch if isinstance(batch, collections.abc.Mapping) else {}
    if isinstance(batch, (list, tuple)) and len(batch) == 2:
        named = {"inputs": batch[0], "labels": batch[1]}
    tensors = {key: each for key, each in named.items() if isinstance(each, torch.Tensor) and each.dim()}
    fitting = {key: each for key, each in tensors.items() if len(each) == count}
    labels = next((fitting.pop(name) for name in _LABELS if name in fitting), None)
    return next(iter(fitting.values()), None), labels


def _of_classes(node):
    ignored, target = node._saved_ignore_index, node._saved_target
    counted = target != (ignored - (1 << 64) if ignored >> 63 else ignored)  # torch shows -100 as it lies in 64 bits
    return -node._saved_self.gather(1, target.where(counted, 0).unsqueeze(1)).squeeze(1).where(counted, 0), counted


def _of_squares(node):
    losses = (node._saved_self - node._saved_target) ** 2
    return losses, torch.ones_like(losses, dtype=torch.bool)


def _of_logits(node):
    losses = F.binary_cross_entropy_with_logits(node._saved_self, node._saved_target, reduction="none")
    return losses, torch.ones_like(losses, dtype=torch.bool)


# Of a loss function its elements' losses, and which of them count.
_FUNCTIONS = {"NllLossBackward0": _of_classes, "NllLoss2DBackward0": _of_classes, "MseLossBackward0": _of_squares,
              "BinaryCrossEntropyWithLogitsBackward0": _of_logits}  # fmt: skip


def _function_of(loss):
    """The one loss function a loss comes from, near it in its graph; None: several, or weights of classes."""
    nodes, found = [loss.grad_fn], []
    for node in nodes:
        if node.name() in _FUNCTIONS:
            found.append(node)
        elif len(nodes) < _MOST_NODES:
            nodes += [each for each, _ in node.next_functions if each is not None and each not in nodes]
    weights = [getattr(node, name, None) for node in found for name in ("_saved_weight", "_saved_pos_weight")]
    return found[0] if len(found) == 1 and all(each is None for each in weights) else None


def _are_rows_of(target, counted, labels):
    """Are targets, laid out row by row, the batch's labels, or those behind each place?"""
    if labels is None or labels.dim() != 2:
        return False
    for shift in (0, 1):
        width = min(labels.shape[1] - shift, target.shape[1])
        own, there = counted[:, :width], labels[:, shift : shift + width].to(target.device)
        same = width > 0 and torch.equal(target[:, :width].where(own, 0), there.where(own, 0))
        if same and not counted[:, width:].any():
            return True
    return False


class OfRows:
    """Of a probe."""

    def __init__(self, probe):
        self.probe, self._end = probe, None

    def hold(self, step, batch):
        """A forward pass has taken a batch."""
        if step.records and any(each is not None for each in batch.content):
            step.holds(self.probe.recorder, batch.ids, *batch.content)
        if not step.keeps:
            batch.content = (None, None)

    @guarded
    def begin(self, step, loss):
        """Before a backward pass, whose gradient tells what share the loss function's result has in the loss."""
        self._end = None
        if loader.content_of is None or not step.keeps or not step.batches or loss.grad_fn is None:
            return
        with contextlib.suppress(Exception):  # of whatever kind of tensor it is
            node, shares = _function_of(loss), []
            elements, counted = _FUNCTIONS[node.name()](node)
            made = elements.double(), counted, node._saved_target, node._saved_reduction == 1
            handle = node.register_prehook(lambda given: shares.append(given[0].detach()))
            taken = step, step.batches[-1], made, shares, handle, float(loss.detach())
            self._end = functools.partial(self._take, *taken)

    @guarded
    def end(self):
        """After it."""
        with contextlib.suppress(Exception):  # nothing may be left to do, too
            self._end()
        self._end = None

    def _take(self, step, batch, made, shares, handle, loss):
        """The rows' losses, if they are all that the loss is made of, each element in the same share."""
        handle.remove()
        elements, counted, target, is_mean = made
        labels, batch.content = batch.content[1], (None, None)
        count = len(batch.ids)
        if len(shares) != 1 or elements.numel() % count:
            return
        share = shares[0].double() / (counted.sum() if is_mean else 1)
        counted = counted & (share != 0)
        used = share.expand_as(elements)[counted]
        whole = (elements.where(counted, 0) * share).sum()
        if not len(used) or not (used - used[0]).abs().max() <= _ROUNDING * used[0].abs():
            return
        if not abs(float(whole) - loss) <= _ROUNDING * abs(loss):
            return
        by_row = [each.reshape(count, -1) for each in (elements, counted, target)]
        is_in_order = len(elements) == count or _are_rows_of(by_row[2], by_row[1], labels)
        if is_in_order:
            step.row_losses.append((batch.ids, by_row[0].where(by_row[1], 0).sum(1), by_row[1].sum(1)))
            self.probe.saw["row_losses"] = True
