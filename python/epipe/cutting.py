"""A simulated cut: the effect of coding on activations in the forward and on gradients in the backward."""

import torch
from torch.autograd.function import once_differentiable

from .codec import Codec, as_tensor, decode


class _Direction:
    """One direction of a cut: its codec and its counts."""

    def __init__(self, spec):
        self.codec = Codec(spec)
        self.reset()

    def reset(self):
        self.values = self.wire_bytes = 0
        self.error_energy = self.signal_energy = 0.0

    def cross(self, x, frozen=False, measure=False):
        frame = self.codec.encode(x, frozen)
        y = decode(frame, x.device)
        self.values += x.numel()
        self.wire_bytes += len(frame)
        if measure:
            self.error_energy += float((x.detach().double() - y.double()).square().sum())
            self.signal_energy += float(x.detach().double().square().sum())
        return y

    def metrics(self):
        return {
            "codec": self.codec.spec,
            "values": self.values,
            "wire_bytes": self.wire_bytes,
            "bits_per_value": 8 * self.wire_bytes / self.values if self.values else 0.0,
            "rel_error": self.error_energy / self.signal_energy if self.signal_energy else 0.0,
        }


class _CutFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, there, back, frozen, measure):
        ctx.back, ctx.frozen, ctx.measure = back, frozen, measure
        y = there.cross(x, frozen, measure)
        # Values dropped by topk in the forward do not affect the result, so their gradients are dropped in the backward, as at a real cut.
        ctx.masked = there.codec.spec.startswith("topk:")
        if ctx.masked:
            ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        if ctx.masked:
            gradient = gradient * (ctx.saved_tensors[0] != 0)
        return ctx.back.cross(gradient, ctx.frozen, ctx.measure), None, None, None, None


def cut(x, forward="none", backward="none"):
    """Applies a cut to x, and to its gradient: each is encoded and decoded again. Differentiable.

        >>> x = torch.ones(4, 8, 16, 16, requires_grad=True)
        >>> epipe.cut(x, forward="dct:0.5", backward="ec:2").sum().backward()
        >>> x.grad.shape
        torch.Size([4, 8, 16, 16])

    forward, backward: codecs for activations and gradients. Every call begins with new codecs, so the result depends only on x;
    `epipe.Cut` keeps their state from call to call, like a cut in training. Raises ValueError for a wrong spec and for NaN and Inf,
    TypeError for anything but a floating-point tensor.
    """
    return _CutFunction.apply(as_tensor(x), _Direction(forward), _Direction(backward), False, False)


class Cut(torch.nn.Module):
    """A simulated cut as a module, which keeps its encoders' state and counts the traffic.

        >>> net = torch.nn.Sequential(torch.nn.Linear(8, 8), epipe.Cut("ec:2", "ec:4"), torch.nn.Linear(8, 2))
        >>> net(torch.randn(16, 8)).sum().backward()
        >>> net[1].metrics()["forward"]["values"]
        128

    In training mode the encoders' state changes from call to call, in evaluation mode it does not. Their state is part of
    `state_dict()`. With `measure=False` errors are not measured, which saves two passes over each tensor.
    """

    def __init__(self, forward="none", backward="none", measure=True):
        super().__init__()
        self.measure = measure
        self._there = _Direction(forward)
        self._back = _Direction(backward)

    def forward(self, x):
        return _CutFunction.apply(as_tensor(x), self._there, self._back, not self.training, self.measure)

    def metrics(self):
        """By direction, since the module was made or `reset_metrics()`: codec, values, wire_bytes (headers included), bits_per_value
        and rel_error (sum (x-x')^2 / sum x^2), the names of metrics.jsonl.

            >>> epipe.Cut().metrics()["backward"]["wire_bytes"]
            0
        """
        return {"forward": self._there.metrics(), "backward": self._back.metrics()}

    def reset_metrics(self):
        """Restarts counting at 0.

        >>> epipe.Cut().reset_metrics()
        """
        self._there.reset()
        self._back.reset()

    def get_extra_state(self):
        return {"forward": self._there.codec.state_dict(), "backward": self._back.codec.state_dict()}

    def set_extra_state(self, state):
        if not isinstance(state, dict) or state.keys() != {"forward", "backward"}:
            raise ValueError("state: expected the states of both directions, as state_dict() of an epipe.Cut has them")
        self._there.codec.load_state_dict(state["forward"])
        self._back.codec.load_state_dict(state["backward"])

    def extra_repr(self):
        return f"forward={self._there.codec.spec!r}, backward={self._back.codec.spec!r}"
