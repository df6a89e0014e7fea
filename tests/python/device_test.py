"""Tensors on a CUDA device: the frames of the CPU, the same bits back, and streams as PyTorch has them. Skipped where there is none."""

import threading
import unittest

import torch

import epipe
from epipe import _build_info
from support import main

# The payloads of the host, byte for byte; docs/gpu.md names the codecs that differ in last bits.
SAME_BYTES = ["none", "fp16", "bf16", "uniform:5", "uniform:8", "sort:3+2", "fast:6+2", "kmeans:3", "ec:2", "dct:0.5", "auto:1",
              "topk:0.1>fp16"]
OTHER_BYTES = ["lowrank:4", "power:4>uniform:8", "ec@0.01"]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def tensors(dtype):
    torch.manual_seed(3)
    maps = torch.nn.functional.avg_pool2d(torch.randn(4, 8, 18, 18), 3, 1).relu().to(dtype)
    return {"maps": maps, "gaussian": torch.randn(3, 7, 33, 21).to(dtype), "text": torch.randn(4, 40, 96).to(dtype),
            "vector": torch.randn(100003).to(dtype), "one value": torch.tensor([3.25], dtype=dtype),
            "no values": torch.zeros(0, 3, dtype=dtype)}


def layouts(x):
    """Views of one tensor that are laid out differently in memory."""
    yield "contiguous", x
    if x.dim() == 4:
        yield "channels last", x.to(memory_format=torch.channels_last)
        yield "reversed dims", x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    wide = torch.stack([x, x + 1], -1)
    yield "every second value", wide[..., 0]
    yield "at an odd offset", torch.cat([x.flatten()[:1], x.flatten()])[1:].view_as(x)


@unittest.skipUnless(torch.cuda.is_available(), "PyTorch sees no CUDA device")
class OnADevice(unittest.TestCase):
    def test_the_module_was_built_for_it(self):
        self.assertTrue(_build_info.CUDA, "expected a module built with EPIPE_CUDA=ON: without it tensors go through the host")

    def test_frames_are_those_of_the_cpu_for_any_type_and_strides(self):
        for spec in SAME_BYTES:
            for dtype in DTYPES:
                for name, x in tensors(dtype).items():
                    expected = epipe.Codec(spec).encode(x)
                    for layout, view in layouts(x.cuda()):
                        with self.subTest(f"{spec}, {dtype}, {name}, {layout}"):
                            self.assertEqual(epipe.Codec(spec).encode(view), expected)

    def test_frames_decode_to_the_same_bits_on_both(self):
        for spec in SAME_BYTES + OTHER_BYTES:
            for dtype in DTYPES:
                for name, x in tensors(dtype).items():
                    with self.subTest(f"{spec}, {dtype}, {name}"):
                        frame = epipe.Codec(spec).encode(x.cuda())
                        y = epipe.decode(frame, device="cuda")
                        self.assertEqual((y.device.type, y.dtype, y.shape), ("cuda", dtype, x.shape))
                        self.assertTrue(torch.equal(y.cpu(), epipe.decode(frame)))

    def test_state_goes_on_from_one_device_to_the_other(self):
        first, second = torch.randn(64, 64), torch.randn(64, 64)
        here = epipe.Codec("ec:2")
        here.encode(first)
        there = epipe.Codec("ec:2")
        there.load_state_dict(here.state_dict())
        self.assertEqual(there.encode(second.cuda()), here.encode(second))

    def test_a_cut_stays_on_the_device_and_does_what_it_does_on_the_cpu(self):
        for dtype in DTYPES:
            x, g = torch.randn(4, 8, 16, 16).to(dtype), torch.randn(4, 8, 16, 16).to(dtype)
            results = []
            for device in ("cpu", "cuda"):
                leaf = x.detach().to(device, copy=True).requires_grad_()
                y = epipe.cut(leaf, forward="dct:1", backward="uniform:6")
                y.backward(g.to(device))
                self.assertEqual((y.device.type, leaf.grad.device.type), (device, device))
                results.append((y.detach().cpu(), leaf.grad.cpu()))
            for on_cpu, on_device in zip(*results):
                self.assertTrue(torch.equal(on_cpu, on_device))

    def test_work_of_the_current_stream_is_seen(self):
        big = torch.randn(4096, 4096, device="cuda")
        expected = epipe.Codec("uniform:8").encode((big.cpu() * 3).clamp(-1, 1))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(20):
                other = big @ big  # keeps the stream busy before what is encoded is there
            x = (big * 3).clamp(-1, 1)
            frame = epipe.Codec("uniform:8").encode(x)
            y = epipe.decode(frame, device="cuda") + 0
        stream.synchronize()
        self.assertEqual(frame, expected)
        self.assertTrue(torch.equal(y.cpu(), epipe.decode(frame)))
        self.assertTrue(torch.isfinite(other).all())

    def test_threads_encode_at_the_same_time(self):
        x = torch.randn(16, 64, 64)
        expected = epipe.Codec("dct:1").encode(x)
        frames = [None] * 8

        def encode(i):
            with torch.cuda.stream(torch.cuda.Stream()):
                frames[i] = epipe.Codec("dct:1").encode(x.cuda())

        threads = [threading.Thread(target=encode, args=(i,)) for i in range(len(frames))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(all(frame == expected for frame in frames))

    def test_wrong_values_and_frames_are_exceptions(self):
        with self.assertRaisesRegex(ValueError, "is nan; only finite values can be encoded"):
            epipe.Codec("ec:2").encode(torch.tensor([1.0, float("nan")], device="cuda"))
        with self.assertRaises(TypeError):
            epipe.Codec("ec:2").encode(torch.zeros(3, dtype=torch.float64, device="cuda"))
        frame = epipe.Codec("ec:2").encode(torch.randn(8, 8, 8))
        for wrong in (b"", frame[:-1], frame[:20], frame + b"x", bytes(1000)):
            with self.assertRaises(ValueError):
                epipe.decode(wrong, device="cuda")
        with self.assertRaises(RuntimeError):
            epipe.decode(frame, device="cuda:99")
        self.assertEqual(len(epipe.Codec("ec:2").encode(epipe.decode(frame, device="cuda"))) > 0, True)

    def test_memory_of_the_device_does_not_grow(self):
        x = torch.randn(64, 64, device="cuda")
        codecs = [epipe.Codec(spec) for spec in ("none", "uniform:4", "ec:2")]
        for i in range(3000):
            if i == 300:
                before = torch.cuda.memory_reserved()
            epipe.decode(codecs[i % len(codecs)].encode(x), device="cuda")
        self.assertEqual(torch.cuda.memory_reserved(), before)


if __name__ == "__main__":
    main()
