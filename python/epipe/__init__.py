"""epipe: networks cut into stages on several machines, and codecs for the tensors that cross the cuts.

A codec by itself; its frames equal the output of `epipe codec encode`, byte for byte:

    >>> import epipe, torch
    >>> x = torch.ones(8, 32, 16, 16)
    >>> frame = epipe.Codec("dct:0.5").encode(x)
    >>> epipe.decode(frame).shape
    torch.Size([8, 32, 16, 16])

The effect of a cut on an existing training script:

    >>> y = epipe.cut(x, forward="dct:0.5", backward="ec:2")    # differentiable

The middle of a network on a server (`epipe serve`):

    >>> stage = epipe.RemoteStage("host:7000", "torchscript:middle.pt", tls="tls", codec="dct:1")
    >>> loss = criterion(head(stage(front(x))), labels); loss.backward()
    >>> optimizer.step(); stage.step()

Contents:

    Codec, decode, codecs         tensors to frames and back
    cut, Cut                      a simulated cut, as a function and as a module
    RemoteStage                   a stage on a server; ServerFailed, ServerLost, RolledBack; AsyncOutput, its result
    train, report, metrics        the program `epipe`, and its output; Metrics, which a notebook plots
    plan                          which flags to train with
    program                       the path of that program

docs/python.md has a page about each.
"""

from ._compatible import check as _check

_check()

from . import _build_info
from .async_output import AsyncOutput
from .codec import Codec, codecs, decode
from ._epipe import RolledBack, ServerFailed, ServerLost
from .cutting import Cut, cut
from .remote_stage import DEFAULT_CODEC, RemoteStage, Submitted
from .run_metrics import Metrics
from .runs import ProgramFailed, metrics, plan, program, report, train

__version__ = _build_info.VERSION
__all__ = [  # not AsyncOutput, which nobody makes: help(epipe) would repeat the 4,800 lines of torch.Tensor's
    "Codec",
    "Cut",
    "DEFAULT_CODEC",
    "Metrics",
    "ProgramFailed",
    "RemoteStage",
    "RolledBack",
    "ServerFailed",
    "ServerLost",
    "Submitted",
    "codecs",
    "cut",
    "decode",
    "metrics",
    "plan",
    "program",
    "report",
    "train",
]
