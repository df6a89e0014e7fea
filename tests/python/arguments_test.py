"""Wrong arguments: an exception that names the argument, what is expected and what came, and never what pybind11 says by itself."""

import io
import re
import unittest

import numpy
import torch

import epipe
from support import main


class WrongArguments(unittest.TestCase):
    def refused(self, error, text, work):
        with self.subTest(text):
            with self.assertRaisesRegex(error, re.escape(text)) as raised:
                work()
            self.assertNotRegex(str(raised.exception), "incompatible|pybind|Unable to cast|could not convert|unpack|not iterable")

    def test_of_a_codec(self):
        self.refused(TypeError, "spec: expected a string such as 'ec:2', got None", lambda: epipe.Codec(None))
        self.refused(TypeError, "spec: expected a string such as 'ec:2', got bytes", lambda: epipe.Codec(b"none"))
        self.refused(TypeError, "threads: expected a whole number, got 2.5", lambda: epipe.Codec("none", threads=2.5))
        self.refused(ValueError, "threads: expected a whole number from 1 to 1024, got 0", lambda: epipe.Codec("none", threads=0))
        self.refused(ValueError, "known are none", lambda: epipe.Codec(""))
        self.refused(ValueError, "expected the end of the spec", lambda: epipe.Codec("ec:2\0"))
        self.refused(TypeError, "spec: expected a string such as 'ec:2', got None", lambda: epipe.cut(torch.ones(3), forward=None))
        self.assertEqual(epipe.Codec("none", threads=numpy.int64(2)).encode(torch.ones(3)), epipe.Codec("none").encode(torch.ones(3)))

    def test_of_decode(self):
        frame = epipe.Codec("ec:2").encode(torch.ones(400))
        for wrong, named in ((None, "None"), ("text", "str"), ([1, 2], "list"), (torch.zeros(3, dtype=torch.uint8), "Tensor; use x.numpy()")):
            self.refused(TypeError, f"frame: expected bytes, or an object that holds bytes, got {named}", lambda: epipe.decode(wrong))
        self.refused(ValueError, "frame: expected bytes one after the other", lambda: epipe.decode(memoryview(frame)[::2]))
        self.refused(ValueError, "this is not an epipe frame", lambda: epipe.decode(numpy.ones(100)))
        self.refused(TypeError, "max_bytes: expected a whole number, got 1.5", lambda: epipe.decode(frame, max_bytes=1.5))
        self.refused(ValueError, "max_bytes: expected a whole number from 0", lambda: epipe.decode(frame, max_bytes=-1))
        for wrong in ("banana", "meta", 1.5):
            self.refused(ValueError, "device: expected cpu, cuda or cuda:N, got", lambda: epipe.decode(frame, device=wrong))
        self.refused(RuntimeError, "cuda:99 is none of them; use cpu", lambda: epipe.decode(frame, device="cuda:99"))

    def test_of_an_array_of_numpy(self):
        for array, text in ((numpy.ones(4), "got torch.float64"), (numpy.zeros(3, numpy.longdouble), "expected a NumPy array of float32"),
                            (numpy.array(["2020-01-01"], "M8[D]"), "got datetime64"), (numpy.zeros(3, [("a", "f4")]), "expected a NumPy array")):
            self.refused(TypeError, text, lambda: epipe.Codec("none").encode(array))

    def test_of_a_state_leave_the_codec_as_it_was(self):
        x = torch.randn(64, 64)
        codec, other, stranger = epipe.Codec("ec:2"), epipe.Codec("ec:2"), epipe.Codec("power:2")
        for one in (codec, other, stranger):
            one.encode(x)
        state = other.state_dict()
        name, value = next(iter(state.items()))
        self.refused(TypeError, "state: expected a dictionary of tensors", lambda: codec.load_state_dict(None))
        self.refused(TypeError, "state: expected tensors by name, got int", lambda: codec.load_state_dict({name: 1}))
        self.refused(TypeError, "state: expected dense tensors with values", lambda: codec.load_state_dict({name: value.to("meta")}))
        for wrong in (stranger.state_dict(), {**state, "more": value}, {name: value[:-1]}, {name: torch.full_like(value, float("nan"))},
                      {name: value.to(torch.complex64)}):
            self.refused(ValueError, "state: expected the state_dict() of a codec with the spec 'ec:2'", lambda: codec.load_state_dict(wrong))
        self.assertEqual(codec.encode(2 * x), other.encode(2 * x))

    def test_of_the_state_of_a_cut(self):
        states = [epipe.Cut("power:2").state_dict(), {"_extra_state": 3}, {"_extra_state": {"forward": {}}}]
        trained = epipe.Cut("power:2")
        trained(torch.randn(64, 64))
        states.append(trained.state_dict())
        epipe.Cut("ec:2").load_state_dict(states[0])  # nothing is in it
        for state in states[1:]:
            self.refused(ValueError, "state: expected the state", lambda: epipe.Cut("ec:2").load_state_dict(state))
        saved = io.BytesIO()
        torch.save(trained.state_dict(), saved)
        saved.seek(0)
        epipe.Cut("power:2").load_state_dict(torch.load(saved))

    def test_of_a_stage(self):
        """None of these reaches a server."""
        for options, error, text in (
            ({"connect": 3}, TypeError, "connect: expected a string such as 'host:7000', got int"),
            ({"connect": "nohost"}, ValueError, "expected host:port or unix:PATH, got 'nohost'"),
            ({"connect": "127.0.0.1:99999"}, ValueError, "expected host:port"),
            ({"model": 3}, TypeError, "model: expected a string such as 'torchscript:middle.pt', got int"),
            ({"model": "nonet"}, ValueError, 'unknown model "nonet"; known are'),
            ({"model": "torchscript:/none.pt"}, ValueError, "/none.pt is not a TorchScript file"),
            ({"layers": 3}, TypeError, "layers: expected (first, end), got 3"),
            ({"layers": (1,)}, ValueError, "layers: expected (first, end), got 1 of them"),
            ({"layers": (0, 1.5)}, TypeError, "layers: expected a whole number, got 1.5"),
            ({"layers": (3, 1)}, ValueError, "expected (first, end) with first < end, got (3, 1)"),
            ({"layers": (0, 99)}, ValueError, "layers: expected a first one and an end after it"),
            ({"codec": 3}, TypeError, "codec: expected a codec, or (forward, backward), got 3"),
            ({"codec": None}, TypeError, "codec: expected a codec, or (forward, backward), got None"),
            ({"codec": ("ec:2",)}, ValueError, "codec: expected a codec, or (forward, backward), got 1 of them"),
            ({"codec": {"forwards": "ec:2"}}, ValueError, "codec: expected forward, backward, got 'forwards'"),
            ({"codec": ("ec:2", None)}, TypeError, "codec: expected a string such as 'dct:1', got None"),
            ({"codec": "zip:3"}, ValueError, "unknown codec"),
            ({"optimizer": "sgd"}, TypeError, "optimizer: expected a dictionary with kind, lr"),
            ({"optimizer": {"kind": 3}}, ValueError, "kind: expected sgd, adam or adamw, got 3"),
            ({"optimizer": {"lr": "0.1"}}, TypeError, "optimizer: lr: expected a number, got '0.1'"),
            ({"optimizer": {"lr": -1}}, ValueError, "lr: expected 0 or more, got -1"),
            ({"optimizer": {"lr": float("nan")}}, ValueError, "lr: expected 0 or more, got nan"),
            ({"optimizer": {"learning_rate": 1}}, ValueError, "expected kind, lr"),
            ({"optimizer": {"kind": "adam", "momentum": 0.9}}, ValueError, "optimizer adam: expected lr, betas, eps, weight_decay, got 'momentum'"),
            ({"optimizer": {"kind": "adam", "betas": 0.9}}, TypeError, "optimizer: betas: expected two numbers, got 0.9"),
            ({"optimizer": {"kind": "adam", "betas": (0.9, 2)}}, ValueError, "expected betas from 0 to below 1, got (0.9, 2.0)"),
            ({"optimizer": {"nesterov": 1}}, TypeError, "optimizer: nesterov: expected True or False, got 1"),
            ({"optimizer": {"nesterov": True}}, ValueError, "nesterov needs a momentum above 0"),
            ({"run_dir": 3}, TypeError, "run_dir: expected a path, got 3"),
            ({"run_dir": __file__}, FileExistsError, __file__),
            ({"tls": "/none", "insecure": False}, ValueError, "cannot open /none/ca.pem"),
            ({"insecure": False}, ValueError, "expected tls, a folder with ca.pem and token"),
            ({"insecure": "yes"}, TypeError, "insecure: expected True or False, got 'yes'"),
            ({"token": 3}, TypeError, "token: expected a string"),
            ({"timeout": "a"}, TypeError, "timeout: expected a number, got 'a'"),
            ({"timeout": 0}, ValueError, "timeout: expected seconds above 0"),
            ({"timeout": float("nan")}, ValueError, "timeout: expected seconds above 0"),
            ({"timeout": 1e300}, ValueError, "timeout: expected seconds above 0, at most 100000000, got 1e+300"),
            ({"chunks": 0}, ValueError, "chunks: expected a whole number from 1 to 4096, got 0"),
            ({"chunks": 2.5}, TypeError, "chunks: expected a whole number, got 2.5"),
            ({"threads": 10**6}, ValueError, "threads: expected a whole number from 1 to 1024"),
            ({"seed": -1}, ValueError, "seed: expected a whole number from 0"),
            ({"seed": 2**70}, ValueError, "seed: expected a whole number from 0"),
            ({"data": 3}, TypeError, "data: expected a dictionary with shape, classes, tokens, vocabulary, got 3"),
            ({"data": {"size": 3}}, ValueError, "expected shape, classes, tokens, vocabulary, got 'size'"),
            ({"data": {"shape": 3}}, TypeError, "data: expected a shape such as (3, 224, 224), got 3"),
            ({"data": {"shape": (3, -1, 2)}}, ValueError, "data: shape: expected a whole number from 1"),
            ({"data": {"classes": 0}}, ValueError, "data: classes: expected a whole number from 1"),
            ({"data": {"tokens": 8}}, ValueError, "data: expected tokens and vocabulary together"),
            ({"lora": 3}, TypeError, "lora: expected a string such as 'r=8,alpha=16', got int"),
            ({"lora": "r=x"}, ValueError, "expected a LoRA such as"),
        ):
            options = {"connect": "127.0.0.1:1", "model": "mlp", "data": {"shape": (8,), "classes": 2}, "insecure": True, "timeout": 2, **options}
            self.refused(error, text, lambda: epipe.RemoteStage(**options))
        with self.assertRaisesRegex(epipe.ServerLost, "nobody answers at this address: start `epipe serve` there"):
            epipe.RemoteStage("127.0.0.1:1", "mlp", insecure=True, timeout=2)


if __name__ == "__main__":
    main()
