"""Tensors to frames and back."""

import torch

from . import _build_info, _epipe

MAX_BYTES = 1 << 32


def as_tensor(x, name="x"):
    """A tensor of a tensor or a NumPy array, without a copy where that is possible."""
    if isinstance(x, torch.Tensor):
        tensor = x
    elif hasattr(x, "__array_interface__"):
        import numpy

        array = numpy.asarray(x)
        if array.dtype.hasobject or array.dtype.kind not in "fiub":
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
    """Encodes tensors to frames, the very frames that cross a cut and that `epipe codec encode` writes.

        >>> codec = epipe.Codec("ec:2")
        >>> frame = codec.encode(torch.randn(32, 64, 256))
        >>> 8 * len(frame) / (32 * 64 * 256) <= 2.01
        True

    spec: "none", "dct:0.5", "topk:0.1>fp16", ...; `epipe.codecs()` lists them, docs/codecs.md describes them.
    threads: that share the work; they change no byte.

    Some codecs remember something of a tensor for the next one (where the rate control stood, a warm start): `state_dict()`.
    Threads may share a codec; they take turns. Raises ValueError for a wrong spec.
    """

    def __init__(self, spec, threads=1):
        self._codec = _epipe.Codec(spec, threads)

    @property
    def spec(self):
        """As `Codec` takes it."""
        return self._codec.spec

    def encode(self, x, frozen=False):
        """The frame of a tensor or NumPy array of float32, float16 or bfloat16, of any shape and strides, as bytes.

            >>> len(epipe.Codec("fp16").encode(torch.zeros(1000))) < 2100
            True

        frozen: leave the codec's memory as it is, as for validation. Raises TypeError for what is no such tensor and ValueError for
        NaN and Inf. Other threads of Python run meanwhile.
        """
        return self._codec.encode(_where_codecs_run(x), frozen)

    def encode_view(self, x, frozen=False):
        """The same frame as a memoryview, without a copy: for large frames that are sent or written and then forgotten.

            >>> epipe.decode(codec.encode_view(torch.zeros(8))).shape
            torch.Size([8])

        It stays as it is for as long as anything refers to it; then the codec uses its memory for a later frame. Into `bytes` an
        uncompressed tensor takes several times as long, because their memory is new each time.
        """
        return memoryview(self._codec.encode_view(_where_codecs_run(x), frozen))

    def state_dict(self):
        """What the codec remembers, by name; empty for most.

            >>> epipe.Codec("uniform:8").state_dict()
            {}
        """
        return self._codec.state()

    def load_state_dict(self, state):
        """Goes on from what `state_dict()` of a codec with the same spec gave.

            >>> again = epipe.Codec("ec:2"); again.load_state_dict(codec.state_dict())
        """
        self._codec.set_state(dict(state))

    def __repr__(self):
        return f"epipe.Codec({self.spec!r})"

    def __reduce__(self):
        return _restored, (self.spec, self._codec.threads, self.state_dict())


def _restored(spec, threads, state):
    codec = Codec(spec, threads)
    codec.load_state_dict(state)
    return codec


def decode(frame, device=None, max_bytes=MAX_BYTES, out=None):
    """The tensor of a frame, whichever codec made it.

        >>> epipe.decode(epipe.Codec("none").encode(torch.tensor([1.0, 2.0])))
        tensor([1., 2.])

    frame: bytes, bytearray, memoryview or a NumPy array of uint8. Nothing in it is trusted: what is damaged raises ValueError, and
    nothing above `max_bytes` is allocated. device: where it is decoded, the CPU by default. out: a tensor on the CPU to read into,
    of the frame's shape and type; for large tensors that saves most of the time of an uncompressed frame.
    """
    if out is not None:
        out = _checked_out(out, device)
    there = torch.device("cpu" if device is None else device)
    if there.type == "cuda" and _build_info.CUDA:
        return _epipe.decode(frame, max_bytes, None, str(there))
    tensor = _epipe.decode(frame, max_bytes, out)
    if out is not None and tensor.data_ptr() != out.data_ptr():
        raise ValueError(f"out: expected {tensor.dtype} {list(tensor.shape)}, as the frame has, got {out.dtype} {list(out.shape)}")
    return tensor.to(there)


def _checked_out(out, device):
    if not isinstance(out, torch.Tensor) or out.device.type != "cpu" or not out.is_contiguous() or out.requires_grad:
        raise TypeError("out: expected a contiguous tensor on the CPU that needs no gradient")
    if device is not None and torch.device(device).type != "cpu":
        raise ValueError("out and device: expected one of them")
    return out


def codecs():
    """What a spec may name; capital letters stand for numbers.

        >>> "dct:N" in epipe.codecs()
        True
    """
    return _epipe.codecs()
