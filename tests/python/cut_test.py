"""epipe.cut and epipe.Cut: what a cut does to activations and gradients, inside any script."""

import copy
import os
import pathlib
import subprocess
import sys
import threading
import unittest

import torch

import epipe
from support import TempFolder, main

DDP = """
import os, sys, torch, epipe
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), epipe.Cut("uniform:8", "ec:4"), torch.nn.Linear(8, 2))
ddp = torch.nn.parallel.DistributedDataParallel(net)
torch.manual_seed(10 + rank)
ddp(torch.randn(16, 8)).square().sum().backward()
torch.save([p.grad for p in net.parameters()], sys.argv[3] + str(rank))
"""


def coded(x, spec):
    return epipe.decode(epipe.Codec(spec).encode(x))


class ACut(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)
        self.x = torch.randn(4, 8, 16, 16, requires_grad=True)
        self.g = torch.randn(4, 8, 16, 16)

    def test_codes_activations_forward_and_gradients_backward(self):
        y = epipe.cut(self.x, forward="dct:1", backward="ec:3")
        y.backward(self.g)
        self.assertTrue(torch.equal(y.detach(), coded(self.x.detach(), "dct:1")))
        self.assertTrue(torch.equal(self.x.grad, coded(self.g, "ec:3")))

    def test_changes_nothing_with_the_codec_none(self):
        y = epipe.cut(self.x)
        y.backward(self.g)
        self.assertTrue(torch.equal(y.detach(), self.x.detach()))
        self.assertTrue(torch.equal(self.x.grad, self.g))

    def test_drops_the_gradient_of_what_topk_dropped(self):
        y = epipe.cut(self.x, forward="topk:0.1")
        y.backward(self.g)
        self.assertTrue(torch.equal(self.x.grad != 0, y.detach() != 0))

    def test_may_be_used_twice_and_in_place(self):
        once = coded(self.x.detach(), "ec:2")
        y, z = epipe.cut(self.x, "ec:2", "none"), epipe.cut(self.x, "ec:2", "none")
        y.mul_(2)  # what autograd needs of y is not y
        (y + z).sum().backward()
        self.assertTrue(torch.equal(z.detach(), once))
        self.assertTrue(torch.equal(self.x.grad, torch.full_like(self.g, 3)))

    def test_works_under_no_grad_and_without_gradients(self):
        with torch.no_grad():
            y = epipe.cut(self.x, "ec:2")
        self.assertFalse(y.requires_grad)
        self.assertFalse(epipe.cut(self.g, "ec:2").requires_grad)
        with self.assertRaisesRegex(RuntimeError, "does not require grad"):
            y.sum().backward()

    def test_takes_16_bit_tensors(self):
        x = self.x.detach().bfloat16().requires_grad_()
        epipe.cut(x, "dct:1", "ec:2").sum().backward()
        self.assertEqual(x.grad.dtype, torch.bfloat16)

    def test_refuses_wrong_input_and_says_why(self):
        for x, forward, error, text in (
            (torch.zeros(3, dtype=torch.int32), "none", TypeError, "use .float()"),
            (torch.full((3,), float("nan")), "ec:2", ValueError, "is nan"),
            (torch.zeros(3), "zip", ValueError, "unknown codec"),
        ):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                epipe.cut(x, forward)

    def test_of_a_nan_gradient_names_it_in_backward(self):
        with self.assertRaisesRegex(ValueError, "is nan"):
            (epipe.cut(self.x, "none", "ec:2") * float("nan")).sum().backward()

    def test_has_no_second_derivative(self):
        y = epipe.cut(self.x, "none", "none")
        (g,) = torch.autograd.grad((y * y).sum(), self.x, create_graph=True)
        with self.assertRaises(RuntimeError):
            g.sum().backward()


class ACutModule(unittest.TestCase):
    def test_counts_bytes_and_errors(self):
        cut = epipe.Cut("uniform:8", "none")
        x = torch.randn(64, 64, requires_grad=True)
        y = cut(x)
        y.sum().backward()
        there, back = cut.metrics()["forward"], cut.metrics()["backward"]
        frame = epipe.Codec("uniform:8").encode(x)
        self.assertEqual((there["values"], there["wire_bytes"]), (4096, len(frame)))
        self.assertAlmostEqual(there["bits_per_value"], 8 * len(frame) / 4096)
        error = float((x - y).detach().double().square().sum() / x.detach().double().square().sum())
        self.assertAlmostEqual(there["rel_error"], error)
        self.assertEqual((back["values"], back["rel_error"]), (4096, 0))
        cut.reset_metrics()
        self.assertEqual(cut.metrics()["forward"]["values"], 0)

    def test_goes_on_from_its_state_and_validates_without_changing_it(self):
        tensors = [torch.randn(64, 64) for _ in range(4)]
        one = epipe.Cut("power:2")
        one(tensors[0])
        other = epipe.Cut("power:2")
        other.load_state_dict(copy.deepcopy(one.state_dict()))
        third = copy.deepcopy(one)
        one.eval()
        one(tensors[3])
        one.train()
        fresh = epipe.Cut("power:2")(tensors[1])
        expected = one(tensors[1])
        self.assertFalse(torch.equal(expected, fresh))
        self.assertTrue(torch.equal(other(tensors[1]), expected))
        self.assertTrue(torch.equal(third(tensors[1]), expected))

    def test_may_be_shared_by_threads(self):
        net = torch.nn.Sequential(torch.nn.Linear(32, 32), epipe.Cut("uniform:8", "uniform:8"), torch.nn.Linear(32, 2))
        errors = []

        def work():
            try:
                for _ in range(20):
                    net(torch.randn(16, 32)).sum().backward()
            except Exception as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_shows_its_codecs(self):
        self.assertEqual(repr(epipe.Cut("dct:1", "ec:2")), "Cut(forward='dct:1', backward='ec:2')")


@unittest.skipUnless(torch.distributed.is_available(), "this PyTorch has no torch.distributed")
class InDistributedDataParallel(TempFolder):
    def test_gives_every_rank_the_same_gradients(self):
        script = self.folder / "ddp.py"
        script.write_text(DDP)
        ranks = [subprocess.Popen([sys.executable, script, str(rank), self.folder / "meet", self.folder / "gradients"],
                                  stderr=subprocess.PIPE, text=True, env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}) for rank in range(2)]
        for rank in ranks:
            _, said = rank.communicate(timeout=120)
            self.assertEqual(rank.returncode, 0, said)
        ours, theirs = (torch.load(self.folder / f"gradients{rank}") for rank in range(2))
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(ours, theirs)))
        self.assertTrue(all(g.abs().sum() > 0 for g in ours))


if __name__ == "__main__":
    main()
