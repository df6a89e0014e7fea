"""What stage(x) returns: a tensor that waits when its values are first used, and is an ordinary one for everything that takes tensors."""

import copy
import io
import pickle
import select
import socket
import threading
import time
import unittest

import numpy
import torch
import torch.utils.checkpoint

import epipe
from epipe.async_output import Arrival
from remote_stage_test import SGD, WithServer, batch, make_parts
from support import Server, equal, main

functional = torch.nn.functional


class Remote:
    """Stands in for the connection of a stage."""

    def __init__(self, values):
        self.values, self.asked = values, 0

    def output(self, number):
        self.asked += 1
        if isinstance(self.values, Exception):
            raise self.values
        return self.values.clone()


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, arrival):
        return epipe.AsyncOutput(arrival)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


def set_a_row(y):
    y += 1
    y[0] = 0
    return y * 1


def under_autocast(y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (y @ torch.ones(6, 3)).float()


LINEAR = torch.nn.Linear(6, 3)
USES = {
    "a module": LINEAR,
    "a loss": lambda y: functional.cross_entropy(y, torch.tensor([0, 1, 2, 0])),
    "modules that work in place": torch.nn.Sequential(torch.nn.ReLU(inplace=True), LINEAR),
    "a TorchScript module": torch.jit.script(LINEAR),
    "a traced module": torch.jit.trace(LINEAR, torch.zeros(4, 6)),
    "attention": lambda y: functional.scaled_dot_product_attention(y, y, y) if hasattr(functional, "scaled_dot_product_attention") else y * 1,
    "batch norm": torch.nn.BatchNorm1d(6),
    "several at once": lambda y: torch.cat([y, 2 * y, torch.einsum("ij,kj->ik", y, y)], 1),
    "as the second argument": lambda y: torch.ones(4, 6) - y,
    "slices": lambda y: y[1:3, ::2],
    "rows": lambda y: torch.stack(list(y)),
    "views": lambda y: y.view(2, 12).mul_(3),
    "in place": lambda y: y.mul_(2).sum(),
    "rows in place": set_a_row,
    "conversions": lambda y: y.float().contiguous().to("cpu").double(),
    "checkpointing": lambda y: torch.utils.checkpoint.checkpoint(LINEAR, y, use_reentrant=True),
    "checkpointing without a second graph": lambda y: torch.utils.checkpoint.checkpoint(LINEAR, y, use_reentrant=False),
    "an autograd.Function": Square.apply,
    "a cut": lambda y: epipe.cut(y, "uniform:8", "uniform:8"),
    "autocast": under_autocast,
    "wait": lambda y: y.wait().mul_(2) if isinstance(y, epipe.AsyncOutput) else y.view_as(y).mul_(2),
}
if hasattr(torch, "compile"):
    USES["a compiled module"] = torch.compile(LINEAR, backend="aot_eager")


class AnAsyncOutput(unittest.TestCase):
    def setUp(self):
        self.values = torch.randn(4, 6)

    def make(self, x=None, values=None):
        self.remote = Remote(self.values if values is None else values)
        arrival = Arrival(self.remote, 0, {"kind": (4, 6)}, "kind", torch.device("cpu"), {})
        return epipe.AsyncOutput(arrival) if x is None else Leave.apply(x, arrival)

    def test_has_a_shape_a_type_and_a_gradient_function_before_it_arrives(self):
        y = self.make(torch.zeros(4, 6, requires_grad=True))
        self.assertEqual((y.shape, y.size(1), y.dim(), y.numel(), len(y), y.stride()), ((4, 6), 6, 2, 24, 4, (6, 1)))
        self.assertEqual((y.dtype, y.device.type, y.layout, y.is_contiguous(), y.is_leaf), (torch.float32, "cpu", torch.strided, True, False))
        self.assertTrue(y.requires_grad and y.grad_fn is not None and torch.is_tensor(y) and torch.is_floating_point(y))
        self.assertEqual(self.remote.asked, 0)
        self.assertEqual(y.sum(), self.values.sum())
        self.assertTrue(torch.equal(y, self.values))
        self.assertEqual(self.remote.asked, 1)

    def test_is_the_tensor_it_becomes_for_operators_and_autograd(self):
        for name, use in USES.items():
            with self.subTest(name):
                results = []
                for later in (False, True):
                    LINEAR.zero_grad()
                    torch.manual_seed(1)
                    leaf = self.values.clone().requires_grad_()
                    y = self.make(leaf) if later else leaf * 1
                    z = use(y)
                    self.assertIs(type(z), torch.Tensor)
                    z.square().sum().backward()
                    results.append([z.detach(), leaf.grad, *(p.grad.clone() for p in LINEAR.parameters() if p.grad is not None)])
                self.assertEqual(len(results[0]), len(results[1]))
                self.assertTrue(all(torch.equal(one, other) for one, other in zip(*results)))

    def test_is_a_plain_tensor_for_what_reads_its_memory(self):
        v = self.values
        self.assertTrue(numpy.array_equal(self.make().numpy(), v.numpy()))
        self.assertTrue(numpy.array_equal(numpy.asarray(self.make()), v.numpy()))
        self.assertEqual(self.make().tolist(), v.tolist())
        self.assertEqual(self.make()[1, 2].item(), v[1, 2].item())
        self.assertEqual(repr(self.make()), repr(v))
        self.assertEqual(f"{self.make()}", f"{v}")
        self.assertEqual(epipe.Codec("none").encode(self.make()), epipe.Codec("none").encode(v))
        saved = io.BytesIO()
        torch.save({"y": self.make(torch.zeros(4, 6, requires_grad=True)).detach(), "z": self.make()}, saved)
        saved.seek(0)
        copies = [copy.copy(self.make()), copy.deepcopy(self.make()), pickle.loads(pickle.dumps(self.make())), self.make().detach(),
                  self.make().data, self.make().clone(), torch.as_tensor(numpy.array(self.make())), torch.from_dlpack(self.make()),
                  *torch.load(saved).values()]
        for one in copies:
            self.assertIs(type(one), torch.Tensor)
            self.assertTrue(torch.equal(one, v))

    def test_under_no_grad_and_in_inference_mode_has_the_same_values(self):
        x = torch.zeros(4, 6, requires_grad=True)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                y = self.make(x)
                self.assertFalse(y.requires_grad)
                self.assertTrue(torch.equal(LINEAR(y), LINEAR(self.values)))
            y = self.make(x)
            with mode():
                self.assertEqual(float(y.mean()), float(self.values.mean()))
            LINEAR(y).sum().backward()  # whoever looked first

    def test_keeps_its_shape(self):
        for use in (lambda y: y.unsqueeze_(0), lambda y: y.t_()):
            y = self.make()
            with self.assertRaisesRegex(RuntimeError, "would change the shape of a stage's output in place; use the form without"):
                use(y)
            self.assertTrue(torch.equal(y, self.values))
        self.assertEqual(self.make().wait().unsqueeze_(0).shape, (1, 4, 6))

    def test_raises_what_went_wrong_where_it_is_first_used(self):
        for use in (LINEAR, torch.sum, repr, pickle.dumps, lambda y: y.numpy(), lambda y: y.mul_(2), lambda y: y.wait()):
            y = self.make(torch.zeros(4, 6, requires_grad=True), epipe.ServerFailed("a reason"))
            self.assertEqual(y.shape, (4, 6))
            for _ in range(2):
                with self.assertRaisesRegex(epipe.ServerFailed, "a reason"):
                    use(y)

    def test_of_another_shape_than_expected_says_so(self):
        y = self.make(values=torch.zeros(3, 6))
        with self.assertRaisesRegex(RuntimeError, r"expected an output of shape \[4, 6\].* got \[3, 6\]; stage\(x\) waits from now on"):
            y + 1


class Link:
    """A link to a server that can hold back what the server sends."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open, self._ended = threading.Event(), threading.Event()
        self._open.set()
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def hold(self):
        self._open.clear()

    def release(self):
        self._open.set()

    def close(self):
        self._ended.set()
        self._open.set()
        for thread in list(self._threads):
            thread.join()
        for one in self._sockets:
            one.close()

    def _accept(self):
        while not self._ended.is_set():
            if not select.select([self._listener], [], [], 0.05)[0]:
                continue
            client = self._listener.accept()[0]
            server = socket.create_connection(self._server)
            self._sockets += [client, server]
            for one, other, held in ((client, server, False), (server, client, True)):
                self._threads.append(threading.Thread(target=self._carry, args=(one, other, held), daemon=True))
                self._threads[-1].start()

    def _carry(self, one, other, held):
        try:
            while not self._ended.is_set():
                if not select.select([one], [], [], 0.05)[0]:
                    continue
                data = one.recv(1 << 16)
                if not data:
                    break
                if held:
                    self._open.wait()
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)  # ends the other direction as well
            except OSError:
                pass


def train_in_parts(front, middle, head, steps):
    """All forwards of a step, then one backward."""
    optimizer = torch.optim.SGD([*front.parameters(), *head.parameters()], lr=0.05, momentum=0.9)
    own = None if isinstance(middle, epipe.RemoteStage) else torch.optim.SGD(middle.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        x, labels = batch(step)
        optimizer.zero_grad()
        if own:
            own.zero_grad()
        outputs = [middle(front(part)) for part in x.chunk(4)]
        losses = [functional.cross_entropy(head(y), t, reduction="sum") / 24 for y, t in zip(outputs, labels.chunk(4))]
        sum(losses).backward()
        optimizer.step()
        own.step() if own else middle.step()


class Odd(torch.nn.Module):
    """Fails for large values, and drops rows that begin with a negative one."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        if bool(x.max() > 100):
            raise RuntimeError("too large for this stage")
        return x[x[:, 0] >= 0] * self.weight


class OfAStage(WithServer):
    def over_a_link(self, **options):
        link = Link(self.server.address)
        self.addCleanup(link.close)
        options = {"codec": "none", "optimizer": SGD, "insecure": True, "timeout": 60, **options}
        stage = epipe.RemoteStage(link.address, f"torchscript:{self.file}", **options)
        self.addCleanup(stage.close)
        return link, stage

    def own_server(self, models):
        server = Server(self.folder, "--models", models).start()
        self.addCleanup(server.stop)
        return server

    def test_micro_batches_are_sent_while_outputs_are_on_their_way(self):
        link, stage = self.over_a_link()
        xs = [torch.randn(8, 16, requires_grad=True) for _ in range(4)]
        self.assertIs(type(stage(xs[0])), torch.Tensor)  # only its output tells the shape
        stage.zero_grad()
        link.hold()
        began = time.monotonic()
        outputs = [stage(x) for x in xs]  # none of them can arrive
        self.assertLess(time.monotonic() - began, 30)
        for y in outputs:
            self.assertIs(type(y), epipe.AsyncOutput)
            self.assertEqual((y.shape, y.requires_grad), ((8, 16), True))
        release = threading.Timer(0.2, link.release)
        release.start()
        for x, y in zip(xs, outputs):
            self.assertTrue(torch.equal(y, self.middle(x)))
        release.join()
        sum(y.square().sum() for y in outputs).backward()
        stage.step()
        here = [x.detach().clone().requires_grad_() for x in xs]
        _, middle, _ = make_parts()
        sum(middle(x).square().sum() for x in here).backward()
        self.assertTrue(all(torch.equal(x.grad, y.grad) for x, y in zip(xs, here)))

    def test_training_ends_with_the_weights_of_the_same_modules_here_bit_for_bit(self):
        here = copy.deepcopy((self.front, self.middle, self.head))
        train_in_parts(*here, steps=5)
        stage = self.stage()
        train_in_parts(self.front, stage, self.head, steps=5)
        self.assertTrue(equal(stage.state_dict(), dict(here[1].state_dict())))
        self.assertTrue(equal(self.front.state_dict(), here[0].state_dict()))
        self.assertTrue(equal(self.head.state_dict(), here[2].state_dict()))

    def test_every_gradient_is_sent_as_soon_as_it_is_there_and_before_any_is_waited_for(self):
        order = []

        class Head(torch.autograd.Function):
            @staticmethod
            def forward(ctx, y):
                return y * 1

            @staticmethod
            def backward(ctx, gradient):
                order.append("head")
                return gradient

        class Recorded:
            def __init__(self, remote):
                self._remote = remote

            def __getattr__(self, name):
                if name in ("backward", "gradient"):
                    order.append(name)
                return getattr(self._remote, name)

        stage = self.stage()
        stage(torch.randn(8, 16))
        stage.zero_grad()
        stage._remote = Recorded(stage._remote)
        for call in (stage, lambda x: stage.submit(x).result()):
            order.clear()
            outputs = [call(self.front(torch.randn(8, 12))) for _ in range(3)]
            sum(Head.apply(y).sum() for y in outputs).backward()
            self.assertEqual(order, ["head", "backward"] * 3 + ["gradient"] * 3)
            stage.step()

    def test_what_the_backward_raises_is_raised_as_it_is(self):
        stage = self.stage()
        for _ in range(2):
            y = stage(torch.randn(8, 16, requires_grad=True))
            with self.assertRaisesRegex(ValueError, "the gradient of the stage's output holds NaN or Inf"):
                (y * float("nan")).sum().backward()
            x = torch.randn(8, 16, requires_grad=True)
            (gradient,) = torch.autograd.grad((stage(x) ** 2).sum(), x, create_graph=True)
            with self.assertRaisesRegex(RuntimeError, "differentiate twice"):
                gradient.sum().backward()
            stage.zero_grad()

    def test_two_stages_follow_each_other(self):
        first, second = self.stage(), self.stage()
        x = torch.randn(8, 16, requires_grad=True)
        for _ in range(2):
            x.grad = None
            second(first(x)).sum().backward()
            first.zero_grad()
            second.zero_grad()
        y = x.detach().clone().requires_grad_()
        self.middle(self.middle(y)).sum().backward()
        self.assertTrue(torch.equal(x.grad, y.grad))

    def test_a_gradient_may_come_before_the_values_are_used(self):
        stage = self.stage(optimizer={"kind": "sgd", "lr": 0.1})
        middle = copy.deepcopy(self.middle)
        x = torch.randn(8, 16)
        stage(x)
        stage.zero_grad()
        y = stage(x)
        y.backward(torch.ones(8, 16))
        stage.step()
        z = middle(x)
        z.sum().backward()
        torch.optim.SGD(middle.parameters(), lr=0.1).step()
        self.assertTrue(torch.equal(y, z))  # though the step is over
        self.assertTrue(equal(stage.state_dict(), dict(middle.state_dict())))

    def test_values_outlive_the_step_and_the_stage(self):
        stage = self.stage().eval()
        x = torch.randn(8, 16)
        with torch.no_grad():
            expected = self.middle(x)
            for end in (stage.zero_grad, lambda: (stage.train(), stage(x).sum().backward(), stage.step(lr=0), stage.eval()), stage.metrics,
                        stage.close):
                if end != stage.close:
                    stage(x)
                y = stage(x)
                self.assertIs(type(y), epipe.AsyncOutput)
                with torch.enable_grad():
                    end()
                self.assertTrue(torch.equal(y, expected))
        self.assertEqual(stage.metrics()["after"]["forward"]["bits_per_value"] > 32, True)

    def test_outputs_that_nobody_uses_do_not_pile_up(self):
        stage = self.stage().eval()
        x = torch.randn(20_000, 16)
        with torch.no_grad():
            for _ in range(60):
                y = stage(x)
                self.assertLessEqual(len(stage._on_their_way), 8)
            self.assertTrue(torch.equal(y, self.middle(x)))

    def test_what_fails_on_the_server_is_raised_at_the_first_use(self):
        file = self.folder / "odd.pt"
        torch.jit.script(Odd()).save(str(file))
        server = self.own_server(self.folder)
        stage = epipe.RemoteStage(server.address, f"torchscript:{file}", codec="none", insecure=True, timeout=30).eval()
        self.addCleanup(stage.close)
        x = torch.rand(8, 16)
        with torch.no_grad():
            self.assertTrue(torch.equal(stage(x), x))
            y = stage(x + 1000)
            self.assertEqual(y.shape, (8, 16))
            with self.assertRaisesRegex(epipe.ServerFailed, "too large for this stage"):
                y + 1
            self.assertTrue(torch.equal(stage(x), x))  # it goes on
            y = stage(x - 0.5)  # fewer rows than an input of this shape had before
            with self.assertRaisesRegex(RuntimeError, r"expected an output of shape \[8, 16\]"):
                y + 1
            z = stage(x - 0.5)
            self.assertIs(type(z), torch.Tensor)
            self.assertTrue(torch.equal(z, (x - 0.5)[x[:, 0] >= 0.5]))

    def test_a_server_that_is_gone_is_noticed_at_the_first_use_or_the_step(self):
        server = self.own_server(self.file.parent)
        x = torch.randn(8, 16, requires_grad=True)
        for use in (lambda stage, y: y.sum(), lambda stage, y: (y.backward(torch.ones(8, 16)), stage.step())):
            stage = epipe.RemoteStage(server.address, f"torchscript:{self.file}", codec="none", insecure=True, timeout=30)
            self.addCleanup(stage.close)
            stage(x).sum().backward()
            stage.step()
            server.kill()
            server.start()
            with self.assertRaisesRegex(epipe.ServerFailed, "no checkpoint is with both sides"):
                use(stage, stage(x))


if __name__ == "__main__":
    main()
