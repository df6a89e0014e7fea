"""The arguments of `epipe.RemoteStage`, checked, as the options of the extension."""

from . import _arguments

#: The default codec of both cuts: dct or ec, whichever has the smaller error, with at most 2 bits per value.
DEFAULT_CODEC = "auto"


_OPTIMIZERS = {"sgd": ("lr", "momentum", "nesterov", "weight_decay"), "adam": ("lr", "betas", "eps", "weight_decay"),
               "adamw": ("lr", "betas", "eps", "weight_decay")}
_OPTIMIZER_KEYS = ("kind", "lr", "momentum", "nesterov", "weight_decay", "betas", "eps")
_LONGEST_TIMEOUT = 1e8  # three years


def stage_options(connect, model, *, layers, weights, data, lora, tls, token, insecure, codec, optimizer, run_dir, timeout, chunks, threads, seed):
    """Raises TypeError and ValueError; what depends on the model or the server is checked there."""
    options = {"connect": _arguments.text("connect", connect, "host:7000"),
               "model": _arguments.text("model", model, "torchscript:middle.pt"),
               "insecure": _arguments.flag("insecure", insecure),
               "timeout": _seconds(timeout),
               "chunks": _arguments.whole("chunks", chunks, 1, 4096),
               "threads": _arguments.whole("threads", threads, 1, 1024),
               "seed": _arguments.whole("seed", seed, 0, (1 << 64) - 1)}
    for more in (_layers_options(layers), _codec_options(codec), _optimizer_options(optimizer), _data_options(data)):
        options.update(more)
    for name, value in (("weights", weights), ("tls", tls), ("run_dir", run_dir)):
        options[name] = "" if value is None else _arguments.path(name, value)
    for name, value, example in (("token", token, "the word in tls/token"), ("lora", lora, "r=8,alpha=16")):
        options[name] = "" if value is None else _arguments.text(name, value, example)
    return options


def _optimizer_options(optimizer):
    if optimizer is not None:
        _arguments.mapping("optimizer", optimizer, _OPTIMIZER_KEYS)
    given = dict(optimizer or {})
    kind = given.pop("kind", "sgd")
    if not isinstance(kind, str) or kind not in _OPTIMIZERS:
        raise ValueError(f"optimizer: kind: expected sgd, adam or adamw, got {kind!r}")
    options = {"optimizer": kind}
    for name, value in _arguments.mapping(f"optimizer {kind}", given, _OPTIMIZERS[kind]).items():
        if name == "betas":
            betas = [_arguments.number("optimizer: betas", beta) for beta in _arguments.pair("optimizer: betas", value, "two numbers")]
            if not all(0 <= beta < 1 for beta in betas):
                raise ValueError(f"optimizer: expected betas from 0 to below 1, got {tuple(betas)}")
            options["beta1"], options["beta2"] = betas
        else:
            options[name] = (_arguments.flag if name == "nesterov" else _arguments.number)(f"optimizer: {name}", value)
    if options.get("nesterov") and not options.get("momentum", 0) > 0:
        raise ValueError("optimizer: nesterov needs a momentum above 0")
    return options


def _codec_options(codec):
    if isinstance(codec, str):
        codec = (codec, codec)
    elif hasattr(codec, "keys"):
        _arguments.mapping("codec", codec, ("forward", "backward"))
        codec = (codec.get("forward", DEFAULT_CODEC), codec.get("backward", DEFAULT_CODEC))
    forward, backward = _arguments.pair("codec", codec, "a codec, or (forward, backward)")
    return {"codec_forward": _arguments.text("codec", forward, "dct:1"), "codec_backward": _arguments.text("codec", backward, "dct:1")}


def _layers_options(layers):
    if layers is None:
        return {"first_layer": 0, "end_layer": 0}  # all of them
    first, end = (_arguments.whole("layers", layer, 0, 1 << 20) for layer in _arguments.pair("layers", layers, "(first, end)"))
    if not first < end:
        raise ValueError(f"layers: expected (first, end) with first < end, got {(first, end)}")
    return {"first_layer": first, "end_layer": end}


def _data_options(data):
    options = {"shape": [3, 224, 224], "classes": 1000}
    if data is None:
        return options
    _arguments.mapping("data", data, ("shape", "classes", "tokens", "vocabulary"))
    if ("tokens" in data) != ("vocabulary" in data) or ("tokens" in data and "shape" in data):
        raise ValueError("data: expected tokens and vocabulary together, for texts, or shape, for anything else")
    options.update({name: _arguments.whole(f"data: {name}", data[name], 1, 1 << 20) for name in ("classes", "vocabulary") if name in data})
    if "shape" in data or "tokens" in data:
        shape = data.get("shape", (data.get("tokens"),))
        if not isinstance(shape, (tuple, list)):
            raise TypeError(f"data: expected a shape such as (3, 224, 224), got {shape!r}")
        options["shape"] = [_arguments.whole("data: shape" if "shape" in data else "data: tokens", extent, 1, 1 << 30) for extent in shape]
    return options


def _seconds(timeout):
    seconds = _arguments.number("timeout", timeout)
    if not 0 < seconds <= _LONGEST_TIMEOUT:
        raise ValueError(f"timeout: expected seconds above 0, at most {_LONGEST_TIMEOUT:.0f}, got {seconds:g}")
    return seconds
