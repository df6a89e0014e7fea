"""A stage of a network on a server."""

import atexit
import functools
import io
import logging
import os
import weakref

import torch
from torch.autograd.function import once_differentiable

from . import _arguments, _epipe
from ._run_folder import RunFolder
from ._stage_options import DEFAULT_CODEC, stage_options
from .async_output import Arrival, AsyncOutput
from .codec import as_tensor

_MOST_ON_THEIR_WAY = 8  # outputs of stage(x): enough to keep a link and a server busy, too few to fill either's buffers
_open_stages = weakref.WeakSet()
_log = logging.getLogger("epipe")


os.register_at_fork(after_in_child=_open_stages.clear)  # they are the parent's


@atexit.register
def _close_all():
    for stage in list(_open_stages):
        stage._leave()


class _Enter(torch.autograd.Function):
    """Sends x; its backward waits for the gradient of x. Its output represents the micro-batch in autograd's graph.

    Two nodes instead of one: when one `backward()` covers several micro-batches, that of the output runs as soon as it can (`_leaves`), so
    all gradients are sent before this one waits for the first.
    """

    @staticmethod
    def forward(ctx, x, anchor, stage):
        ctx.stage, ctx.device = stage, x.device
        ctx.number = stage._remote.forward(x.detach().to("cpu", copy=True), True)
        handle = x.new_empty(0)
        return handle

    @staticmethod
    @once_differentiable
    def backward(ctx, _):
        wanted = ctx.needs_input_grad[0]
        return ctx.stage._remote.gradient(ctx.number).to(ctx.device) if wanted else None, None, None


def _leaves(y, handle, stage, number):
    """y with its place in autograd's graph: its backward sends the gradient as soon as it is there."""

    @once_differentiable
    def send(ctx, gradient):
        stage._remote.backward(number, gradient.detach().to("cpu", torch.float32, copy=True))
        return gradient.new_empty(0)

    return _epipe.with_gradient_sender(y, handle, functools.partial(_only, send))


def _only(function, gradient):
    result = function(None, gradient)
    return result[0] if isinstance(result, tuple) else result


class Submitted:
    """A micro-batch on its way through a stage, returned by `RemoteStage.submit`."""

    def __init__(self, stage, number, handle, device):
        self._stage, self._number, self._handle, self._device = stage, number, handle, device
        self._result = None

    def result(self):
        """Waits for the stage's output and returns it.

            >>> y = stage.submit(x).result()
        """
        if self._result is None:
            y = self._stage._remote.output(self._number).to(self._device).detach()
            self._result = y if self._handle is None else _leaves(y, self._handle, self._stage, self._number)
        return self._result

    def _result_later(self, kind):
        stage = self._stage
        arrival = Arrival(stage._remote, self._number, stage._shapes, kind, self._device, stage._on_their_way)
        y = AsyncOutput(arrival)
        return y if self._handle is None else _leaves(y, self._handle, stage, self._number)


def _folder_of(run_dir):
    """The folder, which an earlier stage of this process, as in a notebook's cell that is run again, leaves first."""
    for stage in list(_open_stages):
        if stage._folder is not None and stage._folder.path == os.path.realpath(run_dir):
            stage._leave()
    return RunFolder(run_dir)


class RemoteStage(torch.nn.Module):
    """A stage on a server (`epipe serve`), as a module without local parameters: its forward and backward run there.

        >>> stage = epipe.RemoteStage("host:7000", "torchscript:middle.pt", tls="tls", codec="dct:1",
        ...                           optimizer={"kind": "sgd", "lr": 0.02, "momentum": 0.9})
        >>> loss = criterion(head(stage(front(x))), labels); loss.backward()
        >>> optimizer.step(); stage.step()

    connect: HOST:PORT. model: a name the server knows, or `torchscript:FILE`, which the server finds by its hash (`epipe serve --models`);
    only weights are sent. layers: (first, end) of the model's layers, by default all. weights: a file with initial weights. data: {"shape":
    (C, H, W), "classes": N} for models that adapt to it, {"tokens": T, "vocabulary": V} for hf:DIR. lora: e.g. "r=8,alpha=16" trains only
    thin matrices beside linear layers. tls: the folder with ca.pem and token; token: another token; insecure=True: plaintext, within one
    machine. codec: for both cuts and directions, or (forward, backward); "auto" is auto:2. optimizer: kind (sgd, adam, adamw), lr,
    momentum, nesterov, weight_decay, betas, eps, as in torch.optim. run_dir: a folder for checkpoints; a stage made with the folder of an
    earlier one continues it. timeout: seconds without a sign of the server, and for trying to reconnect. chunks: maximum number of
    micro-batches between forward and backward. threads: of the server, inside an operator. seed: for initial weights and dropout.

    Every call in training mode is a micro-batch of the step; gradients add up until `step()`. In evaluation mode, under torch.no_grad(),
    nothing changes on the server. `stage(x)` sends x and returns an `AsyncOutput`, a tensor that waits when its values are first used, so
    that micro-batches overlap; the first call with an input of a new shape waits, because only its output tells the shape.

    A lost connection is reopened and the step's messages are sent again; nothing else changes. Raises ServerFailed with the server's
    reason, ServerLost if it cannot be reached, RolledBack if it lost committed steps (see `load`).
    """

    def __init__(self, connect, model, *, layers=None, weights=None, data=None, lora=None, tls=None, token=None, insecure=False,
                 codec=DEFAULT_CODEC, optimizer=None, run_dir=None, timeout=120, chunks=64, threads=1, seed=0):
        super().__init__()
        options = stage_options(connect, model, layers=layers, weights=weights, data=data, lora=lora, tls=tls, token=token, insecure=insecure,
                                codec=codec, optimizer=optimizer, run_dir=run_dir, timeout=timeout, chunks=chunks, threads=threads, seed=seed)
        options["note"] = _log.warning
        self._folder = None if run_dir is None else _folder_of(options["run_dir"])
        self._where = f"{connect}, {model}"
        self._counted = {direction: [[0, 0], [0, 0]] for direction in ("forward", "backward")}
        self._shapes = {}  # of outputs, by mode and input; None: not predictable
        self._on_their_way = {}  # arrivals by micro-batch, the oldest first
        try:
            self._remote = _epipe.RemoteStage(options)
        except BaseException:
            if self._folder is not None:
                self._folder.release()
            raise
        _open_stages.add(self)

    def forward(self, x):
        submitted = self.submit(x)
        kind = self.training, tuple(x.shape)
        if self._shapes.get(kind) is None:
            y = submitted.result()
            self._shapes.setdefault(kind, tuple(y.shape))
            return y
        y = submitted._result_later(kind)
        self._take_outputs(_MOST_ON_THEIR_WAY)
        return y

    def _take_outputs(self, leave=0):
        """Waits for the oldest outputs of stage(x), so that at most `leave` are on their way."""
        while len(oldest := list(self._on_their_way.values())) > leave:  # other threads take some as well
            try:
                oldest[0].values()
            except (_epipe.ServerFailed, _epipe.ServerLost, _epipe.RolledBack):
                raise
            except RuntimeError:
                pass  # of that output alone, which says so when it is used

    def _take_what_comes(self):
        while self._on_their_way:
            try:
                self._take_outputs()
            except (_epipe.ServerFailed, _epipe.RolledBack):
                pass  # those who use the output are told
            except _epipe.ServerLost:
                return

    def submit(self, x):
        """Sends a micro-batch; `result()` of what it returns waits, and gives an ordinary tensor.

            >>> results = [stage.submit(front(part)) for part in x.chunk(4)]
            >>> loss = sum(criterion(head(r.result()), t) for r, t in zip(results, labels.chunk(4))) / 4

        x is copied: it may change afterwards. Returns an object with `result()`.
        """
        x = as_tensor(x).float()
        if self.training and not torch.is_grad_enabled():
            raise RuntimeError("a stage in training mode under torch.no_grad(): call stage.eval() first, or leave no_grad for training")
        if not self.training and torch.is_grad_enabled() and x.requires_grad:
            raise RuntimeError("a stage in evaluation mode has no backward: call stage.train() to train, or use torch.no_grad()")
        if not self.training:
            return Submitted(self, self._remote.forward(x.detach().to("cpu", copy=True), False), None, x.device)
        anchor = torch.empty(0, requires_grad=True)  # x may need no gradient, and the stage's weights do
        handle = _Enter.apply(x, anchor, self)
        return Submitted(self, handle.grad_fn.number, handle, x.device)

    def step(self, lr=None):
        """Steps the server's optimizer with the sum of the gradients since the last step.

            >>> loss = criterion(head(stage(front(x))), labels); loss.backward()
            >>> optimizer.step(); stage.step()

        lr: for this step, by default the optimizer's. Raises RuntimeError if a forward of this step had no backward.
        """
        lr = None if lr is None else _arguments.number("lr", lr)
        self._take_outputs()
        self._remote.step(lr)

    def zero_grad(self, set_to_none=True):
        """Drops the current step: the gradients on the server since the last `step()`.

            >>> stage.zero_grad()
        """
        self._take_what_comes()
        self._remote.discard()

    @property
    def steps(self):
        """The number of steps done. Derive the order of the data from it: then a continued run equals an uninterrupted one.

            >>> stage.steps
            0
        """
        return self._remote.steps_done()

    def save(self, state=None):
        """Writes a checkpoint here (in run_dir) and on the server; call between steps. Both keep the newest two.

            >>> stage.save({"front": front.state_dict(), "head": head.state_dict(), "optimizer": optimizer.state_dict()})

        state: this side's state, anything torch.save takes; `load()` returns it.
        """
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self._remote.save(buffer.getvalue())

    def load(self):
        """The state saved with the checkpoint this stage continued from; None if it started fresh.

            >>> saved = stage.load()
            >>> if saved: front.load_state_dict(saved["front"])

        After RolledBack the stage is back at `steps`, and everything else must go back as well.
        """
        saved = self._remote.saved()
        return torch.load(io.BytesIO(saved), weights_only=False) if saved else None  # our own pickle, from our own folder

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """The stage's current weights on the server, by the model's names. Call between steps.

            >>> torch.save(stage.state_dict(), "middle.pth")
        """
        destination = args[0] if args else {} if destination is None else destination
        prefix = args[1] if len(args) > 1 else prefix
        for name, tensor in self._remote.weights().items():
            destination[prefix + name] = tensor
        return destination

    def load_state_dict(self, state_dict, strict=True):
        raise RuntimeError("the weights of a remote stage are given when it is made: epipe.RemoteStage(..., weights=FILE)")

    def metrics(self):
        """The traffic since the stage was made, by cut ("before" and "after" the stage) and direction: values, wire_bytes,
        bits_per_value.

            >>> sorted(stage.metrics()["before"]["forward"])
            ['bits_per_value', 'values', 'wire_bytes']
        """
        self._take_what_comes()
        for direction, cuts in zip(("forward", "backward"), self._remote.take_traffic()):
            for counted, (wire_bytes, values) in zip(self._counted[direction], cuts):
                counted[0] += wire_bytes
                counted[1] += values
        return {cut: {direction: _traffic(*self._counted[direction][j]) for direction in self._counted}
                for j, cut in enumerate(("before", "after"))}

    def close(self):
        """Leaves the server. A stage with a run_dir can be continued; without one, the server forgets everything.

            >>> stage.close()
        """
        self._take_what_comes()
        self._leave()

    def _leave(self):
        self._close_with(self._remote.end if self._folder is None else self._remote.leave)

    def _close_with(self, close):
        _open_stages.discard(self)
        try:
            close()
        finally:
            if self._folder is not None:
                self._folder.release()

    def end(self):
        """Ends the run: the server forgets it and its checkpoints.

            >>> stage.end()
        """
        self._take_what_comes()
        self._close_with(self._remote.end)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if exception[0] is not None:
            self._on_their_way.clear()  # nobody waits for them now
        self.close()

    def __reduce__(self):
        raise TypeError("a RemoteStage is a connection and cannot be copied or pickled; save stage.state_dict()")

    def __deepcopy__(self, memo):
        self.__reduce__()

    def extra_repr(self):
        return self._where


def _traffic(wire_bytes, values):
    return {"values": values, "wire_bytes": wire_bytes, "bits_per_value": 8 * wire_bytes / values if values else 0.0}
