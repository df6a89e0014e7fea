#!/usr/bin/env python3
"""The plan's choice against what a grid of real runs finds, and its prediction against what it reached. Run as root.

    python3 bench/plan/run.py --program build/epipe --results bench/plan/results.jsonl

A row is appended for each setting; settings that the file has are left out, so that a run can be stopped and gone on
with. Without --results rows are printed. table() prints the README's rows from such a file: run.py --table results.jsonl
"""
import argparse
import contextlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from network import Network, delayed, link_bench, part_of_a_core

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from byte_tokenizer import write_byte_tokenizer

PORT = 7000
ROBERTA = {"model_type": "roberta", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
           "intermediate_size": 1024, "max_position_embeddings": 66, "type_vocab_size": 1}
LLAMA = {"model_type": "llama", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 6,
         "num_attention_heads": 6, "num_key_value_heads": 6, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}
TIMES = ["forward", "backward", "encode", "decode", "wait"]  # of a worker
MODELS = {
    "cnn": {"flags": ["--model", "cnn", "--batch", 64], "pixels": 32, "samples": 256},
    "mobilenet_v2": {"flags": ["--model", "mobilenet_v2", "--batch", 32], "pixels": 64, "samples": 128},
    "resnet18": {"flags": ["--model", "resnet18", "--batch", 32], "pixels": 64, "samples": 128},
    "roberta": {"flags": ["--batch", 32, "--data", "synthetic"], "config": ROBERTA, "name": "roberta"},
    "language": {"flags": ["--batch", 16, "--max-length", 64], "config": LLAMA, "name": "hf", "text": True},
}
# model, Mbit/s up, Mbit/s down, milliseconds one way, share of a core that the client has (0: all)
SETTINGS = [
    ("cnn", 10, 10, 0, 0), ("cnn", 100, 100, 0, 0), ("cnn", 1000, 1000, 0, 0), ("cnn", 10, 100, 20, 0),
    ("mobilenet_v2", 10, 10, 0, 0), ("mobilenet_v2", 100, 100, 20, 0), ("mobilenet_v2", 1000, 1000, 0, 0),
    ("mobilenet_v2", 10, 100, 100, 0), ("mobilenet_v2", 100, 100, 0, 0.2),
    ("resnet18", 100, 100, 0, 0), ("resnet18", 10, 100, 20, 0), ("resnet18", 1000, 1000, 0, 0.2),
    ("roberta", 10, 10, 0, 0), ("roberta", 1, 10, 20, 0),
    ("language", 100, 100, 20, 0), ("language", 1, 10, 100, 0),
]


def core(number):
    """A prefix for a command that has one core of its own, as if it were a machine."""
    return ["taskset", "--cpu-list", str(number)]


def run(command, **options):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, **options).stdout


def model_flags(model, folder):
    """Model, batch and data; what they need is written to the folder."""
    settings = MODELS[model]
    flags = list(settings["flags"])
    if "pixels" in settings:
        data = folder / f"images{settings['pixels']}"
        if not data.exists():
            data.mkdir()
            link_bench.write_images(data, settings["pixels"], settings["samples"], 8)
        return flags + ["--data", f"npy:{data}"]
    own = folder / model
    if not own.exists():
        own.mkdir()
        (own / "config.json").write_text(json.dumps(settings["config"]))
        if "text" in settings:
            write_byte_tokenizer(own)
            documents = sorted((pathlib.Path(__file__).parents[2] / "docs").glob("*.md"))
            (own / "text.txt").write_text("\n".join(page.read_text() for page in documents)[:60_000])
    flags += ["--model", f"{settings['name']}:{own}"]
    return flags + ["--data", f"text:{own / 'text.txt'}"] if "text" in settings else flags


def step_lines(run_dir):
    lines = [json.loads(line) for line in open(run_dir / "metrics.jsonl")]
    return [line for line in lines if line["kind"] == "step"]


class Bench:
    def __init__(self, flags, folder, network):
        self.flags, self.folder, self.network = flags, folder, network
        self.program = str(pathlib.Path(flags.program).resolve())
        run([self.program, "serve", "--init-tls", folder / "tls", "--name", "10.77.0.2"])
        self.count = 0

    def model_flags(self, model):
        return model_flags(model, self.folder)

    @contextlib.contextmanager
    def server(self):
        log = open(self.folder / "server.log", "w+")
        command = self.network.enter(1) + core(1) + [self.program, "serve", "--listen", f"10.77.0.2:{PORT}", "--tls", str(self.folder / "tls"),
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
        return run(self.network.enter(0) + prefix + core(0) + ["env", "OMP_NUM_THREADS=1", self.program, *arguments, "--tls", self.folder / "tls"])

    def plan(self, model, port, prefix):
        workers = f"client:cpu,server:10.77.0.2:{port}@1cores"
        began = time.monotonic()
        text = self.client(prefix, "plan", "--json", *self.model_flags(model), "--workers", workers)
        return json.loads(text.splitlines()[-1]), time.monotonic() - began

    def train(self, model, choice, port, prefix, predicted):
        """Samples per second: the median of the steps after the first."""
        self.count += 1
        run_dir = self.folder / f"run{self.count}"
        batch = self.plan_batch
        steps = int(min(self.flags.steps, max(3, self.flags.longest_run * predicted / batch)))
        self.client(prefix, "train", *self.model_flags(model), *shlex.split(choice), "--max-steps", steps + 1, "--epochs", 1000,
                    "--error-every", 0, "--load-threads", 1, "--connect", f"10.77.0.2:{port}", "--run-dir", run_dir)
        done = step_lines(run_dir)[1:]
        median = lambda of_line: statistics.median(map(of_line, done))
        workers = [{name: median(lambda line: line["workers"][w][name]) for name in TIMES} for w in (0, 1)]
        return {"flags": choice, "samples_per_s": median(lambda line: line["samples"] / line["seconds"]), "predicted": predicted,
                "bytes_per_step": sum(way["wire_bytes"] for way in done[-1]["cuts"]), "workers": workers}

    def grid(self, plan):
        """Neighbours of the plan's choice, in which one thing is changed, and strangers: cuts at the ends and at the thirds, one
        chunk uncoded and many coded."""
        layers = [layer["name"] for layer in plan["inputs"]["layers"]]
        batch, least = plan["inputs"]["batch"], plan["inputs"]["least_samples"]
        own = plan["flags"]
        first, second = (layers.index(cut) for cut in own["cuts"])
        chunks = own["chunks"]
        codec = " ".join(f"--codec-at {at}" for at in own["codec_at"])
        codec = f"--codec {own['codec']} {codec}".strip()

        def flags(cuts, schedule, chunks, codec):
            return f"--cuts {','.join(layers[cut] for cut in cuts)} --place 0,1,0 --schedule {schedule} --chunks {chunks} {codec}"

        for other in ("--codec none", "--codec auto:2"):
            yield flags((first, second), own["schedule"], chunks, other)
        for other in {max(1, chunks // 2), min(int(batch // least), 2 * chunks)}:
            yield flags((first, second), own["schedule"], other, codec)
        yield flags((first, second), "gpipe" if own["schedule"] == "1f1b" else "1f1b", chunks, codec)
        for cuts in ((first - 1, second), (first + 1, second), (first, second - 1), (first, second + 1)):
            if 0 < cuts[0] < cuts[1] < len(layers):
                yield flags(cuts, own["schedule"], chunks, codec)
        third = len(layers) // 3
        many = int(max(2, min(8, batch // least)))
        for cuts in ((1, len(layers) - 1), (max(1, third), max(2, 2 * third))):
            for few_or_many, other in ((1, "--codec none"), (many, "--codec auto:2")):
                yield flags(cuts, "gpipe", few_or_many, other)

    def priced(self, plan, choice):
        """The choice with the best order and micro-batches in flight, and its samples per second."""
        file = self.folder / "costs.json"
        file.write_text(json.dumps(plan))
        whole = json.loads(run([self.program, "plan", "--json", "--costs", file, *shlex.split(choice)]))
        return whole["command"], whole["predicted"]["samples_per_s"]

    def row(self, number):
        model, up, down, delay, slow = SETTINGS[number]
        self.network.rates(up, down)
        load = link_bench.Load()
        with self.server(), delayed(self.network, delay / 1e3, PORT) as port, part_of_a_core(slow) as prefix:
            plan, seconds = self.plan(model, port, prefix)
            self.plan_batch = plan["inputs"]["batch"]
            train = lambda choice, predicted: self.train(model, choice, port, prefix, predicted)
            chosen = train(plan["command"], plan["predicted"]["samples_per_s"])
            priced = dict(self.priced(plan, choice) for choice in self.grid(plan))
            priced.pop(plan["command"], None)
            # A choice that is predicted to take twice as long is priced, and not run.
            runs = {choice for choice, predicted in priced.items() if predicted > 0.5 * chosen["predicted"]}
            others = [train(choice, predicted) if choice in runs else {"flags": choice, "predicted": predicted}
                      for choice, predicted in priced.items()]
            best = max((other for other in others if "samples_per_s" in other), key=lambda one: one["samples_per_s"], default=None)
            # The best of many runs was lucky as well: the two are run again, and both times count.
            for one in (chosen, best) if best else ():
                one["again"] = train(one["flags"], one["predicted"])["samples_per_s"]
                one["samples_per_s"] = statistics.mean([one["samples_per_s"], one["again"]])
        rates = [one["samples_per_s"] for one in [chosen] + others if "samples_per_s" in one]
        return {"setting": number, "model": model, "up_mbit": up, "down_mbit": down, "delay_ms": delay, "client_share": slow,
                "plan": chosen, "of_best": chosen["samples_per_s"] / max(rates),
                "predicted_of_reached": chosen["predicted"] / chosen["samples_per_s"], "others": others, "plan_seconds": seconds,
                "binds": plan["binds"][:3], "facts": plan["facts"], "others_cores": load.others()}


def table(rows):
    print("| model | Mbit/s up/down, delay | samples/s of the plan | of the best run | predicted / reached | of other runs | within 15 % | cores busy with others |")
    print("|---|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda one: one["setting"]):
        ratios = [other["predicted"] / other["samples_per_s"] for other in row["others"] if "samples_per_s" in other]
        good = sum(0.85 <= ratio <= 1.15 for ratio in ratios)
        slow = f", client {row['client_share']} of a core" if row["client_share"] else ""
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
        print(f"| {row['model']} | {row['up_mbit']}/{row['down_mbit']}, {row['delay_ms']} ms{slow} | "
              f"{row['plan']['samples_per_s']:.1f} | {row['of_best']:.2f} | "
              f"{row['predicted_of_reached']:.2f} | {spread} | {good} of {len(ratios)} | {row['others_cores']:.2f} |")


def say(row):
    print(f"{row['model']:13} {row['up_mbit']}/{row['down_mbit']} Mbit/s {row['delay_ms']} ms client {row['client_share'] or 1}: "
          f"{row['plan']['samples_per_s']:.1f} samples/s, {row['of_best']:.2f} of the best, "
          f"predicted {row['predicted_of_reached']:.2f} of it; {row['plan']['flags']} ({row['others_cores']:.2f} cores busy with others)", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/epipe")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("--only", default="", help="numbers of settings, with commas; all when left out")
    parser.add_argument("--steps", type=int, default=60, help="that count, of each run")
    parser.add_argument("--longest-run", type=float, default=4, help="seconds that a run's steps may take by their prediction")
    parser.add_argument("--seconds", type=float, default=1e9, help="no setting begins later")
    flags = parser.parse_args()
    if flags.table:
        return table([json.loads(line) for line in open(flags.table)])
    done = {json.loads(line)["setting"] for line in open(flags.results)} if flags.results and flags.results.exists() else set()
    chosen = [int(n) for n in flags.only.split(",")] if flags.only else [n for n in range(len(SETTINGS)) if n not in done]
    began = time.monotonic()
    try:
        network = Network()
    except (PermissionError, subprocess.CalledProcessError, FileNotFoundError) as error:
        print(f"skipped: network namespaces with ip, tc and nsenter are needed, as root ({error})", file=sys.stderr)
        return
    with contextlib.closing(network), tempfile.TemporaryDirectory() as folder:
        bench = Bench(flags, pathlib.Path(folder), network)
        for number in chosen:
            if time.monotonic() - began > flags.seconds:
                break
            try:
                row = bench.row(number)
            except subprocess.CalledProcessError as error:
                print(f"{SETTINGS[number]}: {error.cmd[-6:]} {error.stderr[-600:]}", file=sys.stderr, flush=True)
                continue
            with open(flags.results, "a") if flags.results else contextlib.nullcontext(sys.stdout) as out:
                print(json.dumps(row), file=out, flush=True)
            say(row)


if __name__ == "__main__":
    main()
