"""Tensors to frames and back."""

import torch

from . import _arguments, _build_info, _epipe
from .async_output import AsyncOutput

MAX_BYTES = 1 << 32
_CPU = torch.device("cpu")


def as_tensor(x, name="x"):
    """A tensor from a tensor or a NumPy array, without a copy if possible."""
    if isinstance(x, AsyncOutput):
        tensor = x.wait()
    elif isinstance(x, torch.Tensor):
        tensor = x
    elif hasattr(x, "__array_interface__"):
        import numpy

        array = numpy.asarray(x)
        if array.dtype.hasobject or array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise TypeError(f"{name}: expected a NumPy array of float32 or float16, got {array.dtype}")
        if any(stride < 0 for stride in array.strides) or not array.dtype.isnative or not array.flags.writeable:
            array = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
        tensor = torch.from_numpy(array)
    else:
        raise TypeError(f"{name}: expected a tensor or a NumPy array, got {type(x).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name}: expected a dense tensor, got {tensor.layout}; use .to_dense()")
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(f"{name}: expected float32, float16 or bfloat16, got {tensor.dtype}; use .float()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{name}: expected a tensor on the CPU or a CUDA device, got one on {tensor.device}; use .cpu()")
    return tensor


def _where_codecs_run(x):
    x = as_tensor(x)
    return x if _build_info.CUDA else x.cpu()


class Codec:
    """Encodes tensors to frames; the same frames cross a cut and are written by `epipe codec encode`.

        >>> codec = epipe.Codec("ec:2")
        >>> frame = codec.encode(torch.randn(32, 64, 256))
        >>> 8 * len(frame) / (32 * 64 * 256) <= 2.01
        True

    spec: "none", "dct:0.5", "topk:0.1>fp16", ...; `epipe.codecs()` lists them, docs/codecs.md describes them.
    threads: number of threads that share the work; it does not change the frames.

    Some codecs keep state between tensors (rate control, a warm start): `state_dict()`. Threads may share a codec; they take turns. Raises
    ValueError for a wrong spec.
    """

    def __init__(self, spec, threads=1):
        self._codec = _epipe.Codec(_arguments.text("spec", spec, "ec:2"), _arguments.whole("threads", threads, 1, 1024))

    @property
    def spec(self):
        """The spec, in the form `Codec` takes.

            >>> codec.spec
            'ec:2'
        """
        return self._codec.spec

    def encode(self, x, frozen=False):
        """The frame of a tensor or NumPy array of float32, float16 or bfloat16, of any shape and strides, as bytes.

            >>> len(epipe.Codec("fp16").encode(torch.zeros(1000))) < 2100
            True

        frozen: do not change the codec's state, e.g. for validation. Raises TypeError for anything else and ValueError for NaN and Inf.
        Releases the GIL.
        """
        return self._codec.encode(_where_codecs_run(x), frozen)

    def encode_view(self, x, frozen=False):
        """The same frame as a memoryview, without a copy: for large frames that are sent or written and then dropped.

            >>> epipe.decode(codec.encode_view(torch.zeros(8))).shape
            torch.Size([8])

        It is valid as long as anything refers to it; then the codec reuses its memory for a later frame. For an uncompressed tensor
        `encode` takes several times as long, because `bytes` need new memory each time.
        """
        return memoryview(self._codec.encode_view(_where_codecs_run(x), frozen))

    def state_dict(self):
        """The codec's state, by name; empty for most.

            >>> epipe.Codec("uniform:8").state_dict()
            {}
        """
        return self._codec.state()

    def load_state_dict(self, state):
        """Continues from the `state_dict()` of a codec with the same spec.

            >>> again = epipe.Codec("ec:2"); again.load_state_dict(codec.state_dict())

        Raises TypeError and ValueError for anything else, and then changes nothing.
        """
        state = _checked_state(state)
        before = self.state_dict()
        self._codec.set_state(state)
        if not _same(self.state_dict(), state):
            self._codec.set_state(before)
            raise ValueError(f"state: expected the state_dict() of a codec with the spec {self.spec!r}, got "
                             f"{ {name: list(value.shape) for name, value in state.items()} }")

    def __repr__(self):
        return f"epipe.Codec({self.spec!r})"

    def __reduce__(self):
        return _restored, (self.spec, self._codec.threads, self.state_dict())


def _restored(spec, threads, state):
    codec = Codec(spec, threads)
    codec.load_state_dict(state)
    return codec


def decode(frame, device=None, max_bytes=MAX_BYTES, out=None):
    """Decodes a frame of any codec.

        >>> epipe.decode(epipe.Codec("none").encode(torch.tensor([1.0, 2.0])))
        tensor([1., 2.])

    frame: bytes, bytearray, memoryview or a NumPy array of uint8; it is not trusted: a damaged frame raises ValueError, and at most
    `max_bytes` are allocated. device: where to decode, by default the CPU. out: a CPU tensor to decode into, of the frame's shape and
    type; for large uncompressed frames this saves most of the time.
    """
    if out is not None:
        out = _checked_out(out, device)
    there = _CPU if device is None else _arguments.device("device", device)
    frame = _checked_frame(frame)
    max_bytes = _arguments.whole("max_bytes", max_bytes, 0, (1 << 63) - 1)
    if there.type == "cuda" and _build_info.CUDA:
        index = torch.cuda.current_device() if there.index is None else there.index
        return _epipe.decode(frame, max_bytes, None, f"cuda:{index}")
    tensor = _epipe.decode(frame, max_bytes, out)
    if out is not None and tensor.data_ptr() != out.data_ptr():
        raise ValueError(f"out: expected {tensor.dtype} {list(tensor.shape)}, as the frame has, got {out.dtype} {list(out.shape)}")
    return tensor.to(there)


def _checked_frame(frame):
    try:
        view = memoryview(frame)
    except TypeError:
        hint = "; use x.numpy()" if isinstance(frame, torch.Tensor) else ""
        raise TypeError(f"frame: expected bytes, or an object that holds bytes, got {_arguments.named(frame)}{hint}") from None
    if not view.c_contiguous:
        raise ValueError("frame: expected bytes one after the other, got a view with gaps; use bytes(frame)")
    return frame


def _checked_state(state):
    if not hasattr(state, "items"):
        raise TypeError(f"state: expected a dictionary of tensors, as state_dict() returns it, got {_arguments.named(state)}")
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise TypeError(f"state: expected tensors by name, got {_arguments.named(value)} by {name!r}")
        if value.layout != torch.strided or value.device.type == "meta":
            raise TypeError(f"state: expected dense tensors with values, got {name!r} {value.layout} on {value.device}")
    return {name: value.detach().cpu() for name, value in state.items()}  # a whole model's may have been loaded to a device


def _same(state, other):
    return state.keys() == other.keys() and all(state[n].dtype == other[n].dtype and torch.equal(state[n], other[n]) for n in state)


def _checked_out(out, device):
    if not isinstance(out, torch.Tensor) or out.device.type != "cpu" or not out.is_contiguous() or out.requires_grad:
        raise TypeError("out: expected a contiguous tensor on the CPU that needs no gradient")
    if device is not None and torch.device(device).type != "cpu":
        raise ValueError("out and device: expected one of them")
    return out


def codecs():
    """The available codecs; capital letters stand for numbers.

        >>> "dct:N" in epipe.codecs()
        True
    """
    return _epipe.codecs()
