"""epipe.Codec and epipe.decode: the program's frames, any tensor, threads, forks, and nothing that ends the interpreter."""

import os
import pickle
import re
import threading
import unittest

import numpy
import torch

import epipe
from support import TempFolder, main, run_program

SPECS = ["none", "fp16", "bf16", "uniform:5", "sort:3+2", "fast:6+2", "kmeans:3", "ec:2", "dct:0.5", "auto:1", "ec@0.01", "topk:0.1>fp16",
         "lowrank:4", "power:4>uniform:8"]


def feature_map():
    torch.manual_seed(3)
    return torch.nn.functional.avg_pool2d(torch.randn(4, 8, 18, 18), 3, 1).relu()


def resident_megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Frames(TempFolder):
    def test_are_those_of_the_program_byte_for_byte(self):
        x = feature_map()
        numpy.save(self.folder / "x.npy", x.numpy())
        for spec in SPECS:
            with self.subTest(spec):
                run_program("codec", "encode", "--codec", spec, self.folder / "x.npy", self.folder / "x.epf")
                frame = epipe.Codec(spec).encode(x)
                self.assertEqual(frame, (self.folder / "x.epf").read_bytes())
                run_program("codec", "decode", self.folder / "x.epf", self.folder / "y.npy")
                self.assertTrue(numpy.array_equal(epipe.decode(frame).numpy(), numpy.load(self.folder / "y.npy")))

    def test_do_not_depend_on_strides_or_threads(self):
        x = feature_map()
        for spec in SPECS:
            with self.subTest(spec):
                expected = epipe.Codec(spec).encode(x)
                self.assertEqual(epipe.Codec(spec).encode(x.to(memory_format=torch.channels_last)), expected)
                self.assertEqual(epipe.Codec(spec).encode(x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)), expected)
                self.assertEqual(epipe.Codec(spec, threads=3).encode(x), expected)

    def test_keep_the_type_of_16_bit_tensors(self):
        for dtype in (torch.float16, torch.bfloat16):
            x = feature_map().to(dtype)
            y = epipe.decode(epipe.Codec("none").encode(x))
            self.assertEqual(y.dtype, dtype)
            self.assertTrue(torch.equal(x, y))
            self.assertEqual(epipe.decode(epipe.Codec("dct:1").encode(x)).dtype, dtype)

    def test_take_numpy_arrays_of_any_layout(self):
        x = numpy.arange(60, dtype=numpy.float32).reshape(3, 4, 5)
        expected = epipe.Codec("none").encode(torch.from_numpy(x))
        read_only = x.copy()
        read_only.flags.writeable = False
        for array in (x, numpy.asfortranarray(x), x[:, ::-1][:, ::-1], x.astype(">f4"), read_only):
            self.assertEqual(epipe.Codec("none").encode(array), expected)
        self.assertTrue(numpy.array_equal(epipe.decode(epipe.Codec("none").encode(x[::-1, ::2])).numpy(), x[::-1, ::2]))

    def test_of_tensors_without_values_and_scalars_survive(self):
        for x in (torch.zeros(0, 3), torch.tensor(2.5), torch.zeros(1)):
            self.assertTrue(torch.equal(epipe.decode(epipe.Codec("none").encode(x)), x))

    def test_are_read_into_a_tensor_that_fits(self):
        x = feature_map()
        for spec in SPECS:
            frame = epipe.Codec(spec).encode(x)
            out = torch.full_like(x, 7)
            y = epipe.decode(frame, out=out)
            self.assertEqual(y.data_ptr(), out.data_ptr())
            self.assertTrue(torch.equal(out, epipe.decode(frame)))
        with self.assertRaisesRegex(ValueError, r"out: expected torch.float32 \[4, 8, 16, 16\], as the frame has, got torch.float16"):
            epipe.decode(frame, out=out.half())
        for wrong in (out.transpose(0, 1), out.clone().requires_grad_(), out.to("meta"), [1]):
            with self.assertRaisesRegex(TypeError, "expected a contiguous tensor on the CPU"):
                epipe.decode(frame, out=wrong)

    def test_are_read_from_anything_that_holds_bytes(self):
        x = feature_map()
        frame = epipe.Codec("uniform:8").encode(x)
        for held in (bytearray(frame), memoryview(frame), numpy.frombuffer(frame, numpy.uint8)):
            self.assertTrue(torch.equal(epipe.decode(held), epipe.decode(frame)))
        self.assertEqual(epipe.decode(frame, device="cpu").device.type, "cpu")


class Views(unittest.TestCase):
    def test_are_the_same_frames_without_a_copy(self):
        x = feature_map()
        for spec in SPECS:
            view = epipe.Codec(spec).encode_view(x)
            self.assertEqual(view, epipe.Codec(spec).encode(x))
            self.assertTrue(torch.equal(epipe.decode(view), epipe.decode(bytes(view))))

    def test_stay_as_they_are_for_as_long_as_anything_refers_to_them(self):
        codec = epipe.Codec("none")
        tensors = [torch.full((1000,), float(i)) for i in range(6)]
        views = [codec.encode_view(x) for x in tensors]
        parts = [view[10:] for view in views]
        array = numpy.frombuffer(codec.encode_view(tensors[0]), numpy.uint8)
        del views[::2], codec
        for i, part in enumerate(parts):
            self.assertEqual(part, epipe.Codec("none").encode(tensors[i])[10:])
        self.assertEqual(array.tobytes(), epipe.Codec("none").encode(tensors[0]))

    def test_use_the_memory_of_frames_that_nobody_holds(self):
        codec = epipe.Codec("none")
        x = torch.randn(1 << 20)
        places = set()
        for _ in range(10):
            places.add(numpy.frombuffer(codec.encode_view(x), numpy.uint8).ctypes.data)
        self.assertEqual(len(places), 1)

    def test_are_read_only_and_refuse_what_encode_refuses(self):
        codec = epipe.Codec("uniform:4")
        view = codec.encode_view(torch.randn(100))
        with self.assertRaises(TypeError):
            view[0] = 1
        with self.assertRaisesRegex(ValueError, "is nan"):
            codec.encode_view(torch.tensor([float("nan")]))
        self.assertEqual(codec.encode_view(torch.ones(5)), epipe.Codec("uniform:4").encode(torch.ones(5)))


class State(unittest.TestCase):
    def test_makes_a_codec_go_on_where_another_one_was(self):
        tensors = [torch.randn(64, 64) * (i + 1) for i in range(4)]
        one, other = epipe.Codec("power:2"), epipe.Codec("power:2")
        for x in tensors[:2]:
            one.encode(x)
        self.assertTrue(one.state_dict())
        other.load_state_dict(one.state_dict())
        third = pickle.loads(pickle.dumps(one))
        fresh = epipe.Codec("power:2").encode(tensors[2])
        expected = one.encode(tensors[2])
        self.assertNotEqual(expected, fresh)
        self.assertEqual(other.encode(tensors[2]), expected)
        self.assertEqual(third.encode(tensors[2]), expected)

    def test_is_left_alone_by_a_frozen_encode(self):
        codec = epipe.Codec("power:2")
        codec.encode(torch.randn(64, 64))
        before = codec.state_dict()
        codec.encode(torch.randn(64, 64), frozen=True)
        after = codec.state_dict()
        self.assertTrue(all(torch.equal(before[name], after[name]) for name in before))


class WrongInput(unittest.TestCase):
    def test_is_an_exception_that_says_what_to_do(self):
        codec = epipe.Codec("ec:2")
        for wrong, error, text in (
            (torch.zeros(3, dtype=torch.int64), TypeError, "expected float32, float16 or bfloat16, got torch.int64; use .float()"),
            (torch.zeros(3, dtype=torch.float64), TypeError, "got torch.float64"),
            (torch.zeros(3, dtype=torch.complex64), TypeError, "complex64"),
            (torch.eye(3).to_sparse(), TypeError, "use .to_dense()"),
            (torch.zeros(3, device="meta"), TypeError, "expected a tensor on the CPU or a CUDA device"),
            ([1.0, 2.0], TypeError, "expected a tensor or a NumPy array, got list"),
            (numpy.array(["x"]), TypeError, "float32 or float16"),
            (torch.tensor([1.0, float("nan")]), ValueError, "is nan; only finite values can be encoded"),
            (torch.tensor([1.0, float("inf")]), ValueError, "is inf; only finite values can be encoded"),
        ):
            with self.subTest(text), self.assertRaisesRegex(error, re.escape(text)):
                codec.encode(wrong)

    def test_of_a_spec_shows_where(self):
        with self.assertRaisesRegex(ValueError, "unknown codec \"zip\"; known are none"):
            epipe.Codec("zip:4")
        with self.assertRaisesRegex(ValueError, "from 1 to 16"):
            epipe.Codec("uniform:99")

    def test_as_a_frame_is_refused_whatever_it_is(self):
        frame = epipe.Codec("ec:2").encode(torch.randn(8, 8, 8))
        for wrong in (b"", b"x", frame[:-1], frame[:20], frame + b"x", bytes(1000)):
            with self.assertRaises(ValueError):
                epipe.decode(wrong)
        with self.assertRaises(ValueError):
            epipe.decode(frame, max_bytes=16)
        generator = numpy.random.default_rng(1)
        for _ in range(3000):
            damaged = bytearray(frame)
            for at in generator.integers(0, len(frame), 3):
                damaged[at] ^= int(generator.integers(1, 256))
            try:
                epipe.decode(bytes(damaged))
            except ValueError:
                pass


class Processes(unittest.TestCase):
    def test_threads_run_while_one_encodes(self):
        x = torch.randn(32, 128, 56, 56)
        codec = epipe.Codec("kmeans:4")
        turns = [0]
        done = threading.Event()

        def count():
            while not done.is_set():
                turns[0] += 1

        counter = threading.Thread(target=count)
        counter.start()
        turns[0] = 0
        codec.encode(x)
        seen = turns[0]
        done.set()
        counter.join()
        self.assertGreater(seen, 1000)

    def test_threads_may_share_a_codec(self):
        x = torch.randn(16, 64, 64)
        codec = epipe.Codec("uniform:4", threads=2)
        expected = codec.encode(x)
        frames = [None] * 40

        def encode(i):
            frames[i] = codec.encode(x)

        threads = [threading.Thread(target=encode, args=(i,)) for i in range(len(frames))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(all(frame == expected for frame in frames))

    def test_a_child_makes_a_codec_of_its_own(self):
        x = torch.randn(100, 100)
        alone, several = epipe.Codec("ec:2"), epipe.Codec("ec:2", threads=2)
        expected = epipe.Codec("ec:2").encode(x)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert alone.encode(x) == expected
                try:
                    several.encode(x)
                except RuntimeError as error:
                    assert "made before the process forked; make a new one in the child" in str(error), error
                    del several
                    code = 0 if epipe.Codec("ec:2", threads=2).encode(x) == expected else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_memory_does_not_grow_in_a_hundred_thousand_calls(self):
        x = torch.randn(16, 16)
        codecs = [epipe.Codec(spec) for spec in ("none", "uniform:4", "ec:2", "topk:0.1>fp16")]
        for i in range(100_000):
            if i == 20_000:
                before = resident_megabytes()
            epipe.decode(codecs[i % len(codecs)].encode(x))
        self.assertLess(resident_megabytes() - before, 4)


class Names(unittest.TestCase):
    def test_lists_what_a_spec_may_be(self):
        self.assertIn("dct:N", epipe.codecs())
        self.assertIn("none", epipe.codecs())
        self.assertEqual(epipe.Codec("topk:0.1>fp16").spec, "topk:0.1>fp16")
        self.assertEqual(repr(epipe.Codec("ec:2")), "epipe.Codec('ec:2')")


if __name__ == "__main__":
    main()
