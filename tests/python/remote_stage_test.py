"""epipe.RemoteStage: the same numbers as the same modules here, and what is left of them when something dies."""

import copy
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import torch

import epipe
from support import Server, TempFolder, equal, main

SGD = {"kind": "sgd", "lr": 0.05, "momentum": 0.9}


def make_parts():
    torch.manual_seed(7)
    front = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU())
    middle = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
    head = torch.nn.Linear(16, 3)
    return front, middle, head


def batch(step):
    generator = torch.Generator().manual_seed(100 + step)
    labels = torch.randint(3, (24,), generator=generator)
    return torch.randn(24, 12, generator=generator) + labels[:, None], labels


class WithServer(TempFolder):
    """A server for all tests of the class; those that kill it have one of their own."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="epipe-python-")
        cls.addClassCleanup(folder.cleanup)
        models = pathlib.Path(folder.name) / "models"
        models.mkdir()
        cls.file = models / "middle.pt"
        torch.jit.script(make_parts()[1]).save(str(cls.file))
        cls.server = Server(folder.name, "--models", models).start()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        super().setUp()
        self.front, self.middle, self.head = make_parts()

    def stage(self, **options):
        options = {"codec": "none", "optimizer": SGD, "insecure": True, "timeout": 30, **options}
        stage = epipe.RemoteStage(self.server.address, f"torchscript:{self.file}", **options)
        self.addCleanup(stage.close)
        return stage


def train(front, middle, head, steps, chunks=1, submit=False, begin=0, each_step=lambda step: None):
    """A training loop as anybody writes it; the middle is a module here or a stage there."""
    parameters = [*front.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    own = torch.optim.SGD(middle.parameters(), lr=0.05, momentum=0.9) if not isinstance(middle, epipe.RemoteStage) else None
    for step in range(begin, steps):
        x, labels = batch(step)
        optimizer.zero_grad()
        parts = list(zip(x.chunk(chunks), labels.chunk(chunks)))
        if own:
            own.zero_grad()
        if submit:
            results = [middle.submit(front(part)) for part, _ in parts]
            losses = [torch.nn.functional.cross_entropy(head(r.result()), t, reduction="sum") / 24 for r, (_, t) in zip(results, parts)]
            sum(losses).backward()
        else:
            for part, t in parts:
                (torch.nn.functional.cross_entropy(head(middle(front(part))), t, reduction="sum") / 24).backward()
        optimizer.step()
        own.step() if own else middle.step()
        each_step(step)


class AStage(WithServer):
    def parts_here(self):
        return copy.deepcopy((self.front, self.middle, self.head))

    def test_trains_to_the_weights_of_the_same_modules_here_bit_for_bit(self):
        for chunks in (1, 3):
            with self.subTest(chunks=chunks):
                here = self.parts_here()
                train(*here, steps=6, chunks=chunks)
                front, _, head = self.parts_here()
                with self.stage() as stage:
                    train(front, stage, head, steps=6, chunks=chunks)
                    self.assertEqual(stage.steps, 6)
                    self.assertTrue(equal(stage.state_dict(), dict(here[1].state_dict())))
                self.assertTrue(equal(front.state_dict(), here[0].state_dict()))
                self.assertTrue(equal(head.state_dict(), here[2].state_dict()))

    def test_overlaps_micro_batches_that_are_submitted_with_the_same_numbers(self):
        here = self.parts_here()

        class Submitting(torch.nn.Module):  # the same graph, and so the same order of sums, here
            def __init__(self, module):
                super().__init__()
                self.module = module

            def submit(self, x):
                y = self.module(x)
                return type("Result", (), {"result": lambda self: y})()

        train(here[0], Submitting(here[1]), here[2], steps=4, chunks=4, submit=True)
        front, _, head = self.parts_here()
        stage = self.stage()
        train(front, stage, head, steps=4, chunks=4, submit=True)
        self.assertTrue(equal(stage.state_dict(), dict(here[1].state_dict())))
        self.assertTrue(equal(front.state_dict(), here[0].state_dict()))

    def test_takes_auto_for_two_bits(self):
        torch.manual_seed(3)
        x = torch.randn(64, 16)
        stage = self.stage(codec="auto")
        stage(x).sum().backward()
        crossed = stage.metrics()["before"]["forward"]["wire_bytes"]
        self.assertEqual(crossed, len(epipe.Codec("auto:2").encode(x)))
        self.assertEqual(epipe.DEFAULT_CODEC, "auto")

    def test_takes_a_learning_rate_with_each_step(self):
        middle, stage = copy.deepcopy(self.middle), self.stage(optimizer={"kind": "sgd", "lr": 100.0})
        optimizer = torch.optim.SGD(middle.parameters(), lr=1.0)
        x = torch.randn(8, 16)
        for module in (middle, stage):
            module(x).square().sum().backward()
        optimizer.param_groups[0]["lr"] = 0.01
        optimizer.step()
        stage.step(lr=0.01)
        self.assertTrue(equal(stage.state_dict(), dict(middle.state_dict())))

    def test_evaluates_without_changing_anything(self):
        stage = self.stage()
        x = torch.randn(8, 16)
        stage.eval()
        with torch.no_grad():
            self.assertTrue(torch.equal(stage(x), self.middle(x)))
            results = [stage.submit(x) for _ in range(5)]
            self.assertTrue(all(torch.equal(result.result(), self.middle(x)) for result in results))
        self.assertEqual(stage.steps, 0)
        self.assertTrue(equal(stage.state_dict(), dict(self.middle.state_dict())))

    def test_drops_a_step_with_zero_grad(self):
        here = copy.deepcopy(self.middle)
        stage = self.stage(optimizer={"kind": "sgd", "lr": 0.1})
        x = torch.randn(8, 16)
        stage(x).sum().backward()
        stage(10 * x)
        stage.zero_grad()
        stage(x).square().sum().backward()
        stage.step()
        here(x).square().sum().backward()
        torch.optim.SGD(here.parameters(), lr=0.1).step()
        self.assertTrue(equal(stage.state_dict(), dict(here.state_dict())))

    def test_codes_what_crosses_and_counts_it(self):
        stage = self.stage(codec=("uniform:8", "ec:4"))
        x = torch.randn(64, 16, requires_grad=True)
        y = stage(x)
        y.square().sum().backward()
        stage.step()
        seen = epipe.cut(x.detach(), "uniform:8")
        self.assertTrue(torch.equal(y.detach(), epipe.cut(self.middle(seen).detach(), "uniform:8")))
        metrics = stage.metrics()
        for cut in ("before", "after"):
            self.assertEqual(metrics[cut]["forward"]["values"], 1024)
            self.assertEqual(metrics[cut]["backward"]["values"], 1024)
            self.assertLess(metrics[cut]["forward"]["bits_per_value"], 10)
            self.assertLess(metrics[cut]["backward"]["bits_per_value"], 6)
        self.assertEqual(metrics["before"]["forward"]["wire_bytes"], len(epipe.Codec("uniform:8").encode(x)))
        self.assertEqual(metrics["after"]["forward"]["wire_bytes"], len(epipe.Codec("uniform:8").encode(y)))

    def test_of_a_model_by_name_has_some_of_its_layers(self):
        data = {"shape": (3, 16, 16), "classes": 10}
        with epipe.RemoteStage(self.server.address, "cnn", layers=(1, 3), data=data, codec="none", insecure=True, seed=5) as stage:
            names = list(stage.state_dict())
            self.assertTrue(names)
            self.assertTrue(all(name.split(".")[1] in ("1", "2") for name in names), names)
        with self.assertRaisesRegex(ValueError, "layers: expected a first one and an end after it"):
            epipe.RemoteStage(self.server.address, "cnn", layers=(1, 99), data=data, insecure=True)

    def test_runs_inside_a_sequential_and_under_autocast(self):
        net = torch.nn.Sequential(self.front, self.stage(), self.head)
        self.assertEqual(len(list(net[1].parameters())), 0)
        x, labels = batch(0)
        try:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                self.front(x)
        except RuntimeError as error:
            self.skipTest(f"LibTorch computes no bfloat16 here: {error}")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(net(x).float(), labels)
        loss.backward()
        net[1].step()
        self.assertIn("1.0.weight", net.state_dict())

    def test_does_not_mind_what_happens_to_x_and_y_afterwards(self):
        stage = self.stage(optimizer={"kind": "sgd", "lr": 0.1})
        here = copy.deepcopy(self.middle)
        x = torch.randn(8, 16)
        here(x).sum().backward()
        torch.optim.SGD(here.parameters(), lr=0.1).step()
        submitted = stage.submit(x)
        x.zero_()
        y = submitted.result()
        y.mul_(1)
        y.sum().backward()
        stage.step()
        self.assertTrue(equal(stage.state_dict(), dict(here.state_dict())))


class WrongUse(WithServer):
    def test_is_an_exception_that_says_what_to_do(self):
        stage = self.stage()
        x = torch.randn(8, 16)
        with self.assertRaisesRegex(RuntimeError, "a step without a backward"):
            stage.step()
        y = stage(x)
        with self.assertRaisesRegex(RuntimeError, "before the backward of 1 of its 1 forwards"):
            stage.step()
        with self.assertRaisesRegex(RuntimeError, "in the middle of a step"):
            stage.state_dict()
        y.sum().backward()
        with self.assertRaisesRegex(RuntimeError, "(a second time|second time)"):
            y.sum().backward()
        stage.step()
        with self.assertRaisesRegex(RuntimeError, "call stage.eval"), torch.no_grad():
            stage(x)
        stage.eval()
        with self.assertRaisesRegex(RuntimeError, "evaluation mode has no backward"):
            stage(x.clone().requires_grad_())
        with torch.no_grad():
            z = stage(x)
        with self.assertRaisesRegex(RuntimeError, "does not require grad"):
            z.sum().backward()
        stage.train()
        with self.assertRaisesRegex(TypeError, "use .float()"):
            stage(torch.zeros(8, 16, dtype=torch.int64))
        with self.assertRaisesRegex(ValueError, "NaN or Inf"):
            stage(torch.full((8, 16), float("nan")))
        with self.assertRaisesRegex(RuntimeError, "without a run folder"):
            stage.save()
        with self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
            copy.deepcopy(stage)
        self.assertEqual(stage.steps, 1)

    def test_leaves_the_stage_usable_when_the_server_refuses_a_tensor(self):
        stage = self.stage()
        with self.assertRaisesRegex(epipe.ServerFailed, "(size|shape|mat1)"):
            stage(torch.randn(8, 5))
        stage(torch.randn(8, 16)).sum().backward()
        stage.step()
        self.assertEqual(stage.steps, 1)

    def test_of_an_old_graph_after_its_step_says_so(self):
        stage = self.stage()
        y, z = stage(torch.randn(8, 16)), stage(torch.randn(8, 16))
        y.sum().backward()
        z.sum().backward(retain_graph=True)
        stage.step()
        with self.assertRaisesRegex(RuntimeError, "belongs to an earlier step"):
            z.sum().backward()

    def test_of_arguments_says_what_is_expected(self):
        for options, error, text in (
            ({"codec": "conv:20x3"}, ValueError, "layers on both sides"),
            ({"weights": self.folder / "none.safetensors"}, RuntimeError, "cannot open .*none.safetensors"),
            ({"lora": "r=8"}, ValueError, "say which linear layers"),
        ):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                self.stage(**options)
        other = self.folder / "other.pt"
        torch.jit.script(torch.nn.Linear(4, 4)).save(str(other))
        with self.assertRaisesRegex(epipe.ServerFailed, "epipe serve --models DIR"):
            epipe.RemoteStage(self.server.address, f"torchscript:{other}", insecure=True, codec="none")

    def test_of_a_closed_stage_or_server_ends_soon(self):
        stage = self.stage(timeout=3)
        stage.close()
        stage.close()
        with self.assertRaisesRegex(RuntimeError, "the stage is closed; make a new one"):
            stage(torch.randn(8, 16))
        server = Server(self.folder, "--models", self.file.parent).start()
        self.addCleanup(server.stop)
        options = {"insecure": True, "codec": "none", "timeout": 3}
        stage = epipe.RemoteStage(server.address, f"torchscript:{self.file}", **options)
        server.kill()
        with self.assertRaises(epipe.ServerLost):
            stage(torch.randn(8, 16))
        with self.assertRaises(epipe.ServerLost):
            epipe.RemoteStage(server.address, f"torchscript:{self.file}", **options)

    def test_by_several_threads_takes_turns(self):
        stage = self.stage()
        errors = []

        def work():
            try:
                for _ in range(5):
                    stage(torch.randn(8, 16)).sum().backward()
            except Exception as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        stage.step()


LOOP = """
import pathlib, sys
import torch
import epipe
sys.path.insert(0, {tests!r})
import remote_stage_test as t
torch.set_num_threads(1)
address, file, run_dir, steps, pause = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])
front, _, head = t.make_parts()
optimizer = torch.optim.SGD([*front.parameters(), *head.parameters()], lr=0.05, momentum=0.9)
with epipe.RemoteStage(address, "torchscript:" + file, codec="ec:3", optimizer=t.SGD, insecure=True, timeout=60, run_dir=run_dir) as stage:
    def load(saved):
        if saved is None:
            return
        front.load_state_dict(saved["front"]), head.load_state_dict(saved["head"]), optimizer.load_state_dict(saved["optimizer"])
    load(stage.load())
    while stage.steps < steps:
        try:
            x, labels = t.batch(stage.steps)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(head(stage(front(x))), labels)
            loss.backward()
            stage.step()
            optimizer.step()
            print("step", stage.steps, flush=True)
            if stage.steps % 4 == 0:
                stage.save({{"front": front.state_dict(), "head": head.state_dict(), "optimizer": optimizer.state_dict()}})
            import time; time.sleep(pause)
        except epipe.RolledBack as lost:
            print("rolled back", stage.steps, flush=True)
            load(stage.load())
    torch.save([front.state_dict(), dict(stage.state_dict()), head.state_dict()], run_dir + "/end.pt")
"""


class AKill(WithServer):
    STEPS = 30

    def start(self, name, pause):
        script = self.folder / "loop.py"
        script.write_text(LOOP.format(tests=str(pathlib.Path(__file__).parent)))
        out = open(self.folder / f"{name}.txt", "a")
        self.addCleanup(out.close)
        return subprocess.Popen([sys.executable, script, self.server.address, self.file, self.folder / name, str(self.STEPS), str(pause)],
                                stdout=out, stderr=subprocess.STDOUT)

    def said(self, name):
        return (self.folder / f"{name}.txt").read_text()

    def wait_for(self, name, text, client):
        for _ in range(2400):
            if text in self.said(name):
                return
            if client.poll() is not None:
                break
            time.sleep(0.05)
        self.fail(self.said(name))

    def end_of(self, name, process):
        self.assertEqual(process.wait(120), 0, self.said(name))
        return torch.load(self.folder / name / "end.pt")

    def undisturbed(self):
        return self.end_of("whole", self.start("whole", 0))

    def assert_same(self, one, other):
        self.assertTrue(all(equal(dict(a), dict(b)) for a, b in zip(one, other)))

    def test_of_the_client_or_the_server_costs_nothing_but_time(self):
        expected = self.undisturbed()
        client = self.start("killed", 0.02)
        self.wait_for("killed", "step 6\n", client)
        client.kill()
        client.wait()
        client = self.start("killed", 0.02)
        self.wait_for("killed", "step 10\n", client)
        self.server.kill()
        self.server.start()
        self.assert_same(self.end_of("killed", client), expected)
        self.assertIn("rolled back 8", self.said("killed"))

    def test_of_a_session_between_steps_and_of_a_link_is_not_noticed(self):
        stage = self.stage(run_dir=self.folder / "run", codec="ec:3", timeout=30)
        here = self.stage(codec="ec:3")
        x = torch.randn(24, 16)
        for i in range(6):
            for module in (here, stage):
                module(x + i).square().sum().backward()
                module.step()
            stage.save(i)
            if i % 2 == 0:
                self.assertTrue(equal(stage.state_dict(), here.state_dict()))
        here.close()
        submitted = stage.submit(x)
        self.server.kill()
        self.server.start()
        y = submitted.result()  # of a server that was told everything again
        y.sum().backward()
        stage.step()
        self.assertEqual(stage.steps, 7)
        self.assertEqual(stage.load(), 5)

    def test_without_a_checkpoint_says_what_is_lost(self):
        stage = self.stage(timeout=30)
        stage(torch.randn(8, 16)).sum().backward()
        stage.step()
        self.server.kill()
        self.server.start()
        with self.assertRaisesRegex(epipe.ServerFailed, "no checkpoint is with both sides"):
            stage(torch.randn(8, 16))

    def test_by_ctrl_c_leaves_the_server_in_order(self):
        client = self.start("stopped", 0.05)
        self.wait_for("stopped", "step 3\n", client)
        client.send_signal(signal.SIGINT)
        self.assertNotEqual(client.wait(120), 0)
        self.assertIn("KeyboardInterrupt", self.said("stopped"))
        client = self.start("stopped", 0)
        self.end_of("stopped", client)


if __name__ == "__main__":
    main()
