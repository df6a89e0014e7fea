#!/usr/bin/env python3
"""slow_link.py EPIPE TOKENIZER TEXT [--rates 10,1000] [CODEC...]: samples/s of LoRA on a server behind a link, both ways limited. Run as root.

The model is llama_32m.json with TOKENIZER's vocabulary and random weights, embedding and first block and last block and head with the client; TEXT is
what text: takes. The codecs take turns at every rate, --rounds times; a line of JSON for each run. The frozen weights of the middle (71 MB) cross
once, before the first step, which takes a minute at 10 Mbit/s and is no part of the figures: the link is limited after the first step."""
import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("link_bench", HERE.parent / "link" / "run.py")
link_bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(link_bench)

ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}


def write_model(folder, tokenizer):
    folder.mkdir()
    config = json.loads((HERE / "llama_32m.json").read_text())
    words = json.loads((tokenizer / "tokenizer.json").read_text())
    config["vocab_size"] = 1 + max([*words["model"]["vocab"].values(), *(token["id"] for token in words["added_tokens"])])
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(tokenizer / "tokenizer.json", folder)


def started_server(flags, network, folder):
    log = folder / "server.log"
    command = [flags.epipe, "serve", "--listen", "10.77.0.2:7000", "--tls", folder / "tls", "--state-dir", folder / "state"]
    server = subprocess.Popen(network.enter(1) + list(map(str, command)), stdout=log.open("w"), stderr=subprocess.STDOUT, env=ONE_THREAD)
    while "listening" not in log.read_text():
        time.sleep(0.1)
    return server


def steps_in(run_dir):
    path = run_dir / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in map(json.loads, lines) if line["kind"] == "step"]


def measure(flags, network, folder, codec, rate):
    run_dir = folder / f"run-{time.monotonic_ns()}"
    command = [flags.epipe, "train", "--connect", "10.77.0.2:7000", "--tls", folder / "tls", "--model", f"hf:{folder}/model", "--data", f"text:{flags.text}",
               "--max-length", str(flags.length), "--cuts", "block.1,block.7", "--place", "0,1,0", "--chunks", str(flags.chunks), "--batch", "16", "--lora", "r=8,alpha=16",
               "--codec", codec, "--optimizer", "adamw", "--lr", "2e-4", "--max-steps", str(flags.steps), "--error-every", "0", "--data-part", "0.3",
               "--threads", "1", "--run-dir", run_dir]
    network.limit(1000)
    client = subprocess.Popen(network.enter(0) + list(map(str, command)), stdout=subprocess.DEVNULL, env=ONE_THREAD)
    while not (first := steps_in(run_dir)):
        if client.poll() is not None:
            raise SystemExit(f"the client ended with {client.returncode}")
        time.sleep(0.02)
    network.limit(rate)
    if client.wait() != 0:
        raise SystemExit(f"the client ended with {client.returncode}")
    steps = steps_in(run_dir)[len(first) + 1:]  # the one after was under way
    way = {"up": [(0, "forward"), (1, "backward")], "down": [(1, "forward"), (0, "backward")]}
    size = {(cut["cut"], cut["direction"]): cut["wire_bytes"] for cut in steps[-1]["cuts"]}
    return {"samples_per_s": 16 / statistics.median(step["seconds"] for step in steps),
            "kB_up": sum(size.get(at, 0) for at in way["up"]) / 1e3, "kB_down": sum(size.get(at, 0) for at in way["down"]) / 1e3}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("epipe")
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("text")
    parser.add_argument("codecs", nargs="*", default=["none", "ec:4", "auto:3"])
    parser.add_argument("--rates", default="10,1000", help="Mbit/s, both ways")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--length", type=int, default=64, help="tokens of a block")
    parser.add_argument("--rounds", type=int, default=1)
    flags = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder / "model", flags.tokenizer)
        link_bench.run(flags.epipe, "serve", "--init-tls", folder / "tls", "--name", "10.77.0.2")
        network = link_bench.Network()
        server = started_server(flags, network, folder)
        try:
            for _ in range(flags.rounds):
                for codec in flags.codecs:
                    for rate in map(int, flags.rates.split(",")):
                        row = {"codec": codec, "chunks": flags.chunks, "mbit": rate, **measure(flags, network, folder, codec, rate)}
                        print(json.dumps({key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()}), flush=True)
        finally:
            server.terminate()
            server.wait()
            network.close()


main()
