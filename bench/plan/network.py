"""Client and server on a link of one's choice: rates by token buckets, delay by a proxy, and a client that has a part of a core."""
import asyncio
import contextlib
import importlib.util
import pathlib
import subprocess
import sys
import time

LINK_BENCH = pathlib.Path(__file__).resolve().parent.parent / "link" / "run.py"
spec = importlib.util.spec_from_file_location("link_bench", LINK_BENCH)
link_bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(link_bench)

CGROUP = pathlib.Path("/sys/fs/cgroup/cpu/epipe-bench-plan")
PERIOD_US = 10_000


class Network(link_bench.Network):
    """Two namespaces and a veth pair; each way has its rate in Mbit/s."""

    def rates(self, up, down):
        for side, mbit in ((0, up), (1, down)):
            burst = max(5_000, int(mbit * 1_000_000 / 8 / 1000))
            self.inside(side, "tc", "qdisc", "replace", "dev", f"wire{side}", "root", "tbf", "rate", f"{mbit}mbit", "burst", burst,
                        "latency", "200ms")


async def forward(reader, writer, delay):
    """Every piece arrives `delay` seconds later; nothing waits for the one before."""
    queue = asyncio.Queue()

    async def write():
        while True:
            due, piece = await queue.get()
            await asyncio.sleep(max(0, due - time.monotonic()))
            if not piece:
                writer.close()
                return
            writer.write(piece)
            await writer.drain()

    task = asyncio.create_task(write())
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(1 << 16):
            queue.put_nowait((time.monotonic() + delay, piece))
    queue.put_nowait((time.monotonic() + delay, b""))
    with contextlib.suppress(ConnectionError):
        await task


async def serve_delay(port, target, delay):
    async def connected(reader, writer):
        there_reader, there_writer = await asyncio.open_connection("10.77.0.2", target)
        await asyncio.gather(forward(reader, there_writer, delay), forward(there_reader, writer, delay))

    server = await asyncio.start_server(connected, "10.77.0.2", port)
    print("ready", flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def delayed(network, seconds, target):
    """The port to dial on the server's side: the server's own, or that of a proxy that delays what passes."""
    if seconds == 0:
        yield target
        return
    command = network.enter(1) + [sys.executable, __file__, str(target + 1), str(target), str(seconds)]
    proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        proxy.stdout.readline()
        yield target + 1
    finally:
        proxy.kill()
        proxy.wait()


@contextlib.contextmanager
def part_of_a_core(share):
    """A prefix for commands that have this share of a core in all; none for 0."""
    if share == 0:
        yield []
        return
    CGROUP.mkdir(exist_ok=True)
    (CGROUP / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (CGROUP / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * share)))
    try:
        yield ["sh", "-c", f'echo $$ > {CGROUP}/cgroup.procs && exec "$0" "$@"']
    finally:
        time.sleep(0.2)
        with contextlib.suppress(OSError):
            CGROUP.rmdir()


if __name__ == "__main__":
    asyncio.run(serve_delay(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
