#!/usr/bin/env python3
"""What `weight=` in a file of tokens comes to: sessions of several people want more CPU than there is, and each one's share is counted.

    weights.py PROGRAM [--weights 4,1,1,1] [--seconds 40]     one JSON line for each name on stdout, then one about all

Every client trains the same model, nearly all of which is on the server, with one thread. A share is what a session's CPU seconds grew by,
of what all of them grew by, as `epipe serve status` counts them, after every session has made steps."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import run

TRAIN = ["--model", "resnet18", "--cuts", "1,8", "--place", "0,1,0", "--batch", "32", "--codec", "fp16", "--epochs",
         "1000", "--threads", "1", "--reconnect", "600"]


def status(program, server):
    told = subprocess.run([program, "serve", "status", "--json", "--state-dir", server.state], check=True, capture_output=True, text=True)
    return {session["who"]: session for session in json.loads(told.stdout)["sessions"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--weights", default="4,1,1,1")
    parser.add_argument("--seconds", type=float, default=40)
    flags = parser.parse_args()
    weights = {f"name-{i}": int(weight) for i, weight in enumerate(flags.weights.split(","))}
    with tempfile.TemporaryDirectory(prefix="epipe-share-") as scratch:
        folder = pathlib.Path(scratch)
        tls, tokens = folder / "tls", folder / "tokens"
        subprocess.run([flags.program, "serve", "--init-tls", tls], check=True, stdout=subprocess.DEVNULL)
        for name in weights:
            token = subprocess.run([flags.program, "serve", "--tokens", tokens, "--add-token", name], check=True, capture_output=True,
                                   text=True).stdout
            (folder / f"{name}.token").write_text(token)
        lines = tokens.read_text().splitlines()
        tokens.write_text("".join(f"{line} weight={weights[line.split()[0]]}\n" for line in lines if line.strip()))
        server = run.Server(flags.program, folder, "--tokens", tokens, "--max-sessions", str(len(weights)), "--session-threads", "1",
                            security=("--tls", tls))
        clients = [subprocess.Popen([flags.program, "train", "--connect", server.address, "--ca", tls / "ca.pem", "--token-file",
                                     folder / f"{name}.token", "--run-dir", folder / name, *TRAIN],
                                    stdout=open(folder / f"{name}.log", "w"), stderr=subprocess.STDOUT, env=run.ENVIRONMENT)
                   for name in weights]
        try:
            begin = time.monotonic()
            while True:
                before = status(flags.program, server)
                if len(before) == len(weights) and all(session["steps"] > 0 for session in before.values()):
                    break
                if time.monotonic() - begin > 120 or any(client.poll() is not None for client in clients):
                    sys.exit("not every session made a step: " + (folder / "name-0.log").read_text())
                time.sleep(0.5)
            begin = time.monotonic()
            time.sleep(flags.seconds)
            after = status(flags.program, server)
            seconds = time.monotonic() - begin
        finally:
            for client in clients:
                client.kill()
                client.wait()
            server.end()
    used = {name: after[name]["device_seconds"] - before[name]["device_seconds"] for name in weights}
    for name, weight in weights.items():
        print(json.dumps({"name": name, "weight": weight, "cpu_seconds": round(used[name], 2), "share": round(used[name] / sum(used.values()), 3),
                          "expected": round(weight / sum(weights.values()), 3), "steps": after[name]["steps"] - before[name]["steps"]}))
    print(json.dumps({"weights": flags.weights, "seconds": round(seconds, 1), "sessions_cpu_seconds": round(sum(used.values()), 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
