#!/usr/bin/env python3
"""The plan's choice against what a coarse grid of real runs finds, and its prediction against what it reached. Run as root.

    python3 bench/plan/run.py --program build/epipe > bench/plan/results.jsonl
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from network import Network, delayed, link_bench, part_of_a_core

PORT = 7000
MODELS = {
    "cnn": {"flags": ["--model", "cnn", "--batch", 64], "pixels": 32, "samples": 256},
    "mobilenet_v2": {"flags": ["--model", "mobilenet_v2", "--batch", 32], "pixels": 64, "samples": 128},
    "resnet18": {"flags": ["--model", "resnet18", "--batch", 32], "pixels": 64, "samples": 128},
    "transformer": {"flags": ["--model", "transformer", "--batch", 32, "--data", "synthetic"]},
}
# model, Mbit/s up, Mbit/s down, milliseconds one way, share of a core that the client has (0: all)
SETTINGS = [
    ("cnn", 10, 10, 0, 0), ("cnn", 100, 100, 0, 0), ("cnn", 1000, 1000, 0, 0), ("cnn", 10, 100, 20, 0),
    ("mobilenet_v2", 10, 10, 0, 0), ("mobilenet_v2", 100, 100, 20, 0), ("mobilenet_v2", 1000, 1000, 0, 0),
    ("mobilenet_v2", 10, 100, 100, 0), ("mobilenet_v2", 100, 100, 0, 0.1),
    ("resnet18", 100, 100, 0, 0), ("resnet18", 10, 100, 20, 0), ("resnet18", 100, 100, 0, 0.1),
    ("transformer", 10, 10, 0, 0), ("transformer", 1, 10, 20, 0),
]


def run(command, **options):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, **options).stdout


class Bench:
    def __init__(self, flags, folder, network):
        self.flags, self.folder, self.network = flags, folder, network
        self.program = str(pathlib.Path(flags.program).resolve())
        run([self.program, "serve", "--init-tls", folder / "tls", "--name", "10.77.0.2"])
        self.count = 0

    def model_flags(self, model):
        settings = MODELS[model]
        if "pixels" not in settings:
            return settings["flags"]
        data = self.folder / f"images{settings['pixels']}"
        if not data.exists():
            data.mkdir()
            link_bench.write_images(data, settings["pixels"], settings["samples"], 8)
        return settings["flags"] + ["--data", f"npy:{data}"]

    @contextlib.contextmanager
    def server(self):
        log = open(self.folder / "server.log", "w+")
        command = self.network.enter(1) + [self.program, "serve", "--listen", f"10.77.0.2:{PORT}", "--tls", str(self.folder / "tls"),
                                           "--state-dir", str(self.folder / f"state{self.count}")]
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

    def client(self, prefix, *arguments):
        return run(self.network.enter(0) + prefix + ["env", "OMP_NUM_THREADS=1", self.program, *arguments, "--tls", self.folder / "tls"])

    def plan(self, model, slow, port, prefix):
        workers = f"client:cpu,server:10.77.0.2:{port}@{'1cores' if slow else 'here'}"
        began = time.monotonic()
        text = self.client(prefix, "plan", "--json", *self.model_flags(model), "--workers", workers)
        return json.loads(text.splitlines()[-1]), time.monotonic() - began

    def train(self, model, choice, port, prefix):
        """Samples per second: the median of the steps after the first."""
        self.count += 1
        run_dir = self.folder / f"run{self.count}"
        steps = self.flags.steps
        self.client(prefix, "train", *self.model_flags(model), *choice.split(), "--max-steps", steps + 1, "--epochs", 100, "--error-every", 0,
                    "--load-threads", 1, "--connect", f"10.77.0.2:{port}", "--run-dir", run_dir)
        lines = [json.loads(line) for line in open(run_dir / "metrics.jsonl")]
        done = [line for line in lines if line["kind"] == "step"][1:]
        return {"flags": choice, "samples_per_s": statistics.median(line["samples"] / line["seconds"] for line in done),
                "bytes_per_step": sum(way["wire_bytes"] for way in done[-1]["cuts"])}

    def grid(self, plan):
        """Early and late cuts, balanced ones, and those of the first runner-up, with few and many chunks, coded and not."""
        layers = [layer["name"] for layer in plan["inputs"]["layers"]]
        third = len(layers) // 3
        cuts = {f"{layers[1]},{layers[-1]}", f"{layers[max(1, third)]},{layers[max(2, 2 * third)]}"}
        batch, least = plan["inputs"]["batch"], plan["inputs"]["least_samples"]
        for at in sorted(cuts):
            for chunks in (1, int(max(2, min(8, batch // least)))):
                for codec in ("none", "auto:2"):
                    yield f"--cuts {at} --place 0,1,0 --schedule gpipe --chunks {chunks} --codec {codec}"

    def predicted(self, plan, choice):
        file = self.folder / "costs.json"
        file.write_text(json.dumps(plan))
        return json.loads(run([self.program, "plan", "--json", "--costs", file, *choice.split()]))["predicted"]["samples_per_s"]

    def row(self, model, up, down, delay, slow):
        self.network.rates(up, down)
        with self.server(), delayed(self.network, delay / 1e3, PORT) as port, part_of_a_core(slow) as prefix:
            plan, seconds = self.plan(model, slow, port, prefix)
            chosen = self.train(model, plan["command"], port, prefix)
            chosen["predicted"] = plan["predicted"]["samples_per_s"]
            others = []
            for choice in self.grid(plan):
                if choice == plan["command"]:
                    continue
                predicted = self.predicted(plan, choice)
                batch = plan["inputs"]["batch"]
                if batch / predicted > self.flags.longest:  # a step of it takes too long to be the best
                    others.append({"flags": choice, "predicted": predicted, "skipped": True})
                    continue
                others.append(self.train(model, choice, port, prefix) | {"predicted": predicted})
        best = max([chosen] + [other for other in others if "samples_per_s" in other], key=lambda one: one["samples_per_s"])
        return {"model": model, "up_mbit": up, "down_mbit": down, "delay_ms": delay, "client_share": slow, "plan": chosen,
                "best": best["flags"], "of_best": chosen["samples_per_s"] / best["samples_per_s"],
                "predicted_of_reached": chosen["predicted"] / chosen["samples_per_s"], "others": others, "plan_seconds": seconds,
                "binds": plan["binds"][:3], "facts": plan["facts"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/epipe")
    parser.add_argument("--only", default="", help="numbers of settings, with commas; all when left out")
    parser.add_argument("--steps", type=int, default=4, help="that count, of each run")
    parser.add_argument("--longest", type=float, default=4, help="seconds a step of the grid may take by its prediction")
    flags = parser.parse_args()
    try:
        network = Network()
    except (PermissionError, subprocess.CalledProcessError, FileNotFoundError) as error:
        print(f"skipped: network namespaces with ip, tc and nsenter are needed, as root ({error})", file=sys.stderr)
        return
    chosen = [int(n) for n in flags.only.split(",")] if flags.only else range(len(SETTINGS))
    with contextlib.closing(network), tempfile.TemporaryDirectory() as folder:
        bench = Bench(flags, pathlib.Path(folder), network)
        for number in chosen:
            try:
                row = bench.row(*SETTINGS[number]) | {"setting": number}
            except subprocess.CalledProcessError as error:
                print(f"{SETTINGS[number]}: {error.cmd[-6:]} {error.stderr[-600:]}", file=sys.stderr, flush=True)
                continue
            print(json.dumps(row), flush=True)
            print(f"{row['model']:13} {row['up_mbit']}/{row['down_mbit']} Mbit/s {row['delay_ms']} ms client {row['client_share'] or 1}: "
                  f"{row['plan']['samples_per_s']:.1f} samples/s, {row['of_best']:.2f} of the best, predicted "
                  f"{row['predicted_of_reached']:.2f} of it; {row['plan']['flags']}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
