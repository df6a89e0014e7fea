#!/usr/bin/env python3
"""Client and server over links of 10, 100 and 1000 Mbit/s, against the simulator's bound. Run as root; README.md explains the rows.

    python3 bench/link/run.py --program build/epipe > bench/link/results.jsonl
"""
import argparse
import array
import contextlib
import json
import os
import pathlib
import random
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

CODECS = ["none", "uniform:8", "sort:6+2", "power:4", "ec:2", "dct:1", "dct:0.25", "auto"]
# Images, samples per micro-batch, chunks: small enough for 10 Mbit/s, large enough that an action is not all overhead.
MODELS = {
    "mobilenet_v2": {"pixels": 64, "samples": 8, "chunks": 4, "cuts": "1,19"},
    "cnn": {"pixels": 32, "samples": 32, "chunks": 4, "cuts": "1,4"},
}


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, **options).stdout


class Load:
    """How many cores other programs used meanwhile."""

    def __init__(self):
        self.began, self.busy, self.own = time.monotonic(), self.machine(), self.children()

    @staticmethod
    def machine():
        user, nice, system, _, _, _, _, steal = map(int, open("/proc/stat").readline().split()[1:9])
        return (user + nice + system + steal) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def children():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def others(self):
        used = self.machine() - self.busy - (self.children() - self.own)
        return max(0.0, used / (time.monotonic() - self.began))


class Network:
    """Two network namespaces joined by a veth pair; each end sends through a token bucket."""

    def __init__(self):
        self.ends = [subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in range(2)]
        time.sleep(0.2)
        if any(end.poll() is not None for end in self.ends):
            raise PermissionError("network namespaces are not permitted here")
        self.inside(0, "ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1", "netns", self.ends[1].pid)
        for side in (0, 1):
            self.inside(side, "ip", "link", "set", "lo", "up")
            self.inside(side, "ip", "address", "add", f"10.77.0.{side + 1}/24", "dev", f"wire{side}")
            self.inside(side, "ip", "link", "set", f"wire{side}", "up")
            self.inside(side, "sysctl", "-q", "net.ipv4.tcp_congestion_control=reno")  # every kernel has it

    def enter(self, side):
        return ["nsenter", "--net", "--target", str(self.ends[side].pid)]

    def inside(self, side, *command):
        return run(*self.enter(side), *command)

    def limit(self, mbit):
        burst = max(5_000, mbit * 1_000_000 // 8 // 1000)  # 1 ms of the rate, some packets: little is free after a pause
        for side in (0, 1):
            self.inside(side, "tc", "qdisc", "replace", "dev", f"wire{side}", "root", "tbf", "rate", f"{mbit}mbit", "burst", burst,
                        "latency", "200ms")

    def close(self):
        for end in self.ends:
            end.kill()
            end.wait()


def write_npy(path, kind, shape, values):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values.tobytes())


def image(generator, pixels):
    """3 x pixels x pixels: patches of 8 x 8 pixels, each of one value, and some noise."""
    patches = pixels // 8
    for _ in range(3):
        rows = [[generator.gauss(0, 1) for _ in range(patches)] for _ in range(patches)]
        for y in range(pixels):
            noise = generator.randbytes(pixels)
            for x in range(pixels):
                yield rows[y // 8][x // 8] + noise[x] / 500


def write_images(folder, pixels, train, validation):
    generator = random.Random(1)
    for part, count in (("train", train), ("val", validation)):
        values = array.array("f")
        for _ in range(count):
            values.extend(image(generator, pixels))
        write_npy(folder / f"{part}_x.npy", "<f4", (count, 3, pixels, pixels), values)
        write_npy(folder / f"{part}_y.npy", "<i8", (count,), array.array("q", [generator.randrange(10) for _ in range(count)]))


def trimmed_mean(values):
    """Of the middle four fifths: a codec may take longer for some tensors, but nobody waits here for another program's turn."""
    cut = len(values) // 10
    return statistics.mean(sorted(values)[cut:len(values) - cut])


class Bench:
    def __init__(self, flags, folder):
        self.flags = flags
        self.folder = folder
        self.program = str(pathlib.Path(flags.program).resolve())
        run(self.program, "serve", "--init-tls", folder / "tls", "--name", "10.77.0.2")

    def arguments(self, model, codec, chunks, steps, run_dir):
        settings = MODELS[model]
        data = self.folder / model
        if not data.exists():
            data.mkdir()
            write_images(data, settings["pixels"], 4 * settings["samples"] * settings["chunks"], settings["samples"])
        return ["train", "--model", model, "--data", f"npy:{data}", "--cuts", settings["cuts"], "--place", "0,1,0", "--chunks", chunks,
                "--batch", settings["samples"] * chunks, "--codec", codec, "--max-steps", steps, "--error-every", 0, "--threads", 1,
                "--load-threads", 1, "--epochs", 100, "--run-dir", run_dir]

    def steps_of(self, run_dir):
        lines = [json.loads(line) for line in open(run_dir / "metrics.jsonl")]
        return [line for line in lines if line["kind"] == "step"]

    def measure_costs(self, model, codec):
        """Seconds and bytes of one micro-batch that is alone in the pipeline: nothing runs beside anything."""
        run_dir = self.folder / "alone"
        run("rm", "-rf", run_dir)
        run(self.program, *self.arguments(model, codec, 1, self.flags.alone, run_dir), env=os.environ | {"OMP_NUM_THREADS": "1"})
        events = json.load(open(run_dir / "trace.json"))["traceEvents"]
        spans = {}
        tracks = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
        for event in events:
            if event["ph"] != "X" or event["args"]["step"] < self.flags.alone // 4:  # caches, and codecs that find their step size
                continue
            where = event["name"].split()[-1] if event["cat"] in ("forward", "backward") else tracks[event["tid"]]
            spans.setdefault((event["cat"], where), []).append(event["dur"] / 1e6)
        seconds = lambda kind, where: trimmed_mean(spans[kind, where])
        way = lambda kind, direction, end: [seconds(kind, f"cut {cut} {direction} {end}") for cut in (0, 1)]
        sizes = {(way["cut"], way["direction"]): way["wire_bytes"] for way in self.steps_of(run_dir)[-1]["cuts"]}
        return {"forward": [seconds("forward", str(stage)) for stage in range(3)],
                "backward": [seconds("backward", str(stage)) for stage in range(3)],
                "encode_forward": way("encode", "forward", "sender"), "encode_backward": way("encode", "backward", "sender"),
                "decode_forward": way("decode", "forward", "receiver"), "decode_backward": way("decode", "backward", "receiver"),
                "bytes_forward": [sizes[cut, "forward"] for cut in (0, 1)], "bytes_backward": [sizes[cut, "backward"] for cut in (0, 1)]}

    @contextlib.contextmanager
    def server(self, network):
        run("rm", "-rf", self.folder / "state")
        log = open(self.folder / "server.log", "w+")
        command = network.enter(1) + [self.program, "serve", "--listen", "10.77.0.2:7000", "--tls", str(self.folder / "tls"),
                                      "--state-dir", str(self.folder / "state")]
        server = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"})
        try:
            for _ in range(100):
                if "listening" in open(log.name).read():
                    break
                time.sleep(0.1)
            yield
        finally:
            server.terminate()
            server.wait()

    def link(self, network, size):
        rows = network.inside(0, self.program, "bench", "link", "10.77.0.2:7000", "--tls", self.folder / "tls", "--sizes", size, "--json")
        return json.loads(rows.splitlines()[0])

    def latency(self, network):
        return self.link(network, 64)["round_trip_ms"] / 2e3

    def carry(self, network):
        """Seconds of a core per byte at each end: without a bucket, the slower end of a link is busy all the time."""
        with self.server(network):
            speed = self.link(network, 1 << 19)
        return 1 / (1e6 * max(speed["send_MBps"], speed["recv_MBps"]))

    def bound(self, model, costs, mbit, latency, carry):
        file = self.folder / "costs.json"
        ends = {f"carry_{way}": [carry * size for size in costs[f"bytes_{way}"]] for way in ("forward", "backward")}
        shared = {"bytes_per_second": mbit * 1e6 / 8, "latency": latency, "machine_of": [0, 0], "cores": [2]}
        file.write_text(json.dumps(costs | ends | shared))
        text = run(self.program, "schedule", "--place", "0,1,0", "--chunks", MODELS[model]["chunks"], "--costs", file, "--json")
        return json.loads(text)

    def measure(self, model, codec, steps, network):
        run_dir = pathlib.Path(self.flags.keep or self.folder) / "run"
        run("rm", "-rf", run_dir)
        arguments = self.arguments(model, codec, MODELS[model]["chunks"], steps + 1, run_dir)
        command = [self.program, *arguments, "--connect", "10.77.0.2:7000", "--tls", self.folder / "tls"]
        network.inside(0, "env", "OMP_NUM_THREADS=1", *command)
        return self.steps_of(run_dir)[1:]  # the first one warms up

    def row(self, model, codec, mbit, steps, network, costs, carry):
        with self.server(network):
            latency = self.latency(network)
        load = Load()
        with self.server(network):
            steps = self.measure(model, codec, steps, network)
        others = load.others()
        seconds = statistics.median(step["seconds"] for step in steps)
        bound = self.bound(model, costs, mbit, latency, carry)
        return {"model": model, "codec": codec, "mbit": mbit, "samples": steps[0]["samples"], "seconds": seconds,
                "samples_per_s": steps[0]["samples"] / seconds, "wire_bytes": sum(way["wire_bytes"] for way in steps[-1]["cuts"]),
                "latency_ms": 1e3 * latency, "bound_seconds": bound["makespan"], "of_bound": bound["makespan"] / seconds,
                "step_seconds": [step["seconds"] for step in steps], "costs": costs, "carry_ns_per_byte": 1e9 * carry,
                "others_cores": others}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/epipe")
    parser.add_argument("--rates", default="10,100,1000", help="Mbit/s")
    parser.add_argument("--codecs", default=",".join(CODECS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--steps", default="2,6,10", help="that count, by rate")
    parser.add_argument("--alone", type=int, default=40, help="steps that measure the costs")
    parser.add_argument("--tries", type=int, default=1, help="per row, of which the one that others disturbed least counts")
    parser.add_argument("--keep", help="folder for the last run's directory")
    flags = parser.parse_args()
    try:
        network = Network()
    except (PermissionError, subprocess.CalledProcessError, FileNotFoundError) as error:
        print(f"skipped: network namespaces with ip, tc and nsenter are needed, as root ({error})", file=sys.stderr)
        return
    with contextlib.closing(network), tempfile.TemporaryDirectory() as folder:
        bench = Bench(flags, pathlib.Path(folder))
        carry = bench.carry(network)
        for model in flags.models.split(","):
            for codec in flags.codecs.split(","):
                costs = bench.measure_costs(model, codec)
                for mbit, steps in zip(map(int, flags.rates.split(",")), map(int, flags.steps.split(","))):
                    network.limit(mbit)
                    tries = [bench.row(model, codec, mbit, steps, network, costs, carry) for _ in range(flags.tries)]
                    row = min(tries, key=lambda one: one["others_cores"])
                    print(json.dumps(row), flush=True)
                    print(f"{model:13} {codec:10} {mbit:5} Mbit/s {row['samples_per_s']:8.1f} samples/s {row['wire_bytes']:9} bytes "
                          f"{1e3 * row['seconds']:8.1f} ms, bound {1e3 * row['bound_seconds']:8.1f} ms: {row['of_bound']:.2f} "
                          f"({row['others_cores']:.2f} cores busy with others)",
                          file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
