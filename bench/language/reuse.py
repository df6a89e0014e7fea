#!/usr/bin/env python3
"""reuse.py EPIPE TOKENIZER TEXT [CODEC...]: bytes on the wire in each epoch of LoRA with a frozen front, with --reuse-activations and without.

A llama of 4 blocks of 128 features with random weights, its first block with the client, on a server within this machine. TOKENIZER is a folder of a
tokenizer.json, TEXT what text: takes. Prints a table; with --reuse-quota 0 the weights must be those with the server's default, and are compared."""
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

EPIPE, TOKENIZER, TEXT = sys.argv[1:4]
CODECS = sys.argv[4:] or ["none", "ec:4", "auto:4"]
EPOCHS = 3
CONFIG = {"model_type": "llama", "vocab_size": 50257, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
          "hidden_act": "silu"}


def serve(folder, quota):
    log = folder / f"serve-{quota}.log"
    server = subprocess.Popen([EPIPE, "serve", "--insecure", "--listen", "127.0.0.1:0", "--state-dir", folder / f"state-{quota}", "--reuse-quota", quota],
                              stdout=log.open("w"), stderr=subprocess.STDOUT)
    while "listening on " not in log.read_text():
        time.sleep(0.1)
    return server, log.read_text().split("listening on ")[1].split()[0].rstrip(",")


def train(folder, address, name, codec, reuse):
    run = folder / name
    subprocess.run([EPIPE, "train", "--connect", address, "--insecure", "--model", f"hf:{folder}/model", "--data", f"text:{TEXT}", "--max-length", "128",
                    "--cuts", "block.1,block.3", "--place", "0,1,0", "--chunks", "2", "--batch", "16", "--freeze", "0-1", "--lora", "r=4,alpha=8",
                    "--codec", codec, "--optimizer", "adamw", "--lr", "1e-3", "--epochs", str(EPOCHS), "--data-part", "0.2", "--error-every", "0",
                    *(["--reuse-activations"] if reuse else []), "--run-dir", run], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first, rest = [0] * EPOCHS, [0] * EPOCHS
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        if line["kind"] != "step":
            continue
        for cut in line["cuts"]:
            (first if (cut["cut"], cut["direction"]) == (0, "forward") else rest)[line["epoch"]] += cut["wire_bytes"]
    weights = hashlib.sha256((run / "adapter" / "adapter_model.safetensors").read_bytes()).hexdigest()
    return first, rest, weights


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(CONFIG))
        shutil.copy(pathlib.Path(TOKENIZER) / "tokenizer.json", folder / "model")
        servers = {quota: serve(folder, quota) for quota in ("1", "0")}
        print(f"| codec | | first cut, KB in epoch {', '.join(map(str, range(1, EPOCHS + 1)))} | other cut and directions |\n|---|---|---|---|")
        for codec in CODECS:
            rows = {"without": ("1", False), "reuse": ("1", True), "reuse, server without room": ("0", True)}
            weights = {}
            for what, (quota, reuse) in rows.items():
                first, rest, weights[what] = train(folder, servers[quota][1], f"{codec}-{what}".replace(" ", "-").replace(":", ""), codec, reuse)
                print(f"| {codec} | {what} | {', '.join(f'{b / 1000:.1f}' for b in first)} | {', '.join(f'{b / 1000:.1f}' for b in rest)} |", flush=True)
            same = weights["reuse"] == weights["reuse, server without room"]
            print(f"weights with {codec}: {'the same' if same else 'DIFFERENT'} with and without room", file=sys.stderr)
        for server, _ in servers.values():
            server.terminate()
            server.wait()


main()
