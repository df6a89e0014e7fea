#!/usr/bin/env python3
"""Many clients of one server at once: whether all finish, with the weights they have alone, and how unequal their times are.

    run.py PROGRAM [--clients 64] [--steps 4]     one JSON line for each client, then one about all, on stdout

A client's fair share of a machine of C cores, where N clients begin at once, is the time in which its N-th part of the cores does what it
does alone: N / C times the CPU seconds of its process and its session, measured alone."""
import argparse
import hashlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

RUN = ["--model", "cnn", "--chunks", "2", "--batch", "32", "--codec", "dct:1", "--momentum", "0.9", "--epochs", "1000", "--threads", "1"]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")


class Server:
    def __init__(self, program, folder, *flags, security=("--insecure",)):
        self.program, self.state = program, folder / "state"
        self.log = open(folder / "server.log", "w+")
        self.process = subprocess.Popen([program, "serve", *security, "--listen", "127.0.0.1:0", "--state-dir", self.state, *flags],
                                        stdout=self.log, stderr=self.log, env=ENVIRONMENT)
        while True:
            text = pathlib.Path(self.log.name).read_text()
            if "listening on " in text:
                self.address = text.split("listening on ")[1].split()[0].rstrip(",")
                return
            if self.process.poll() is not None:
                sys.exit(f"the server did not start: {text}")
            time.sleep(0.05)

    def end(self):
        self.process.terminate()
        self.process.wait()


def client(program, folder, server, name, *more, security=("--insecure",)):
    log = open(folder / f"{name}.log", "w")
    return subprocess.Popen([program, "train", *security, "--connect", server.address, "--run-dir", folder / name, "--reconnect", "600",
                             *RUN, *more], stdout=log, stderr=log, env=ENVIRONMENT)


def weights(folder, name):
    return hashlib.sha256((folder / name / "model.safetensors").read_bytes()).hexdigest()


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def crowd(flags, folder):
    server = Server(flags.program, folder, "--max-sessions", str(flags.clients), "--audit-log", str(folder / "audit.jsonl"))
    alone = {}
    before = cpu_seconds()
    begin = time.monotonic()
    for seed in range(4):  # with the server's part: its sessions are in the audit
        if client(flags.program, folder, server, f"alone-{seed}", "--seed", str(seed), "--max-steps", str(flags.steps)).wait() != 0:
            sys.exit((folder / f"alone-{seed}.log").read_text())
        alone[seed] = weights(folder, f"alone-{seed}")
    alone_seconds = (time.monotonic() - begin) / 4
    time.sleep(0.5)
    sessions = [json.loads(line) for line in open(folder / "audit.jsonl")]
    of_sessions = sum(line["device_seconds"] for line in sessions if line["event"] == "session_end")
    work = (cpu_seconds() - before + of_sessions) / 4
    cores = len(os.sched_getaffinity(0))
    fair = flags.clients * work / cores
    begin = time.monotonic()
    running = {i: client(flags.program, folder, server, f"client-{i}", "--seed", str(i % 4), "--max-steps", str(flags.steps))
               for i in range(flags.clients)}
    rows = []
    while running:
        for i, process in list(running.items()):
            if process.poll() is not None:
                seconds = time.monotonic() - begin
                same = process.returncode == 0 and weights(folder, f"client-{i}") == alone[i % 4]
                rows.append({"client": i, "seconds": round(seconds, 2), "of_fair_share": round(seconds / fair, 3), "exit": process.returncode,
                             "same_weights": same})
                print(json.dumps(rows[-1]), flush=True)
                del running[i]
        time.sleep(0.02)
    server.end()
    ratios = sorted(row["of_fair_share"] for row in rows)
    print(json.dumps({"clients": flags.clients, "steps": flags.steps, "cores": cores, "alone_seconds": round(alone_seconds, 2),
                      "alone_cpu_seconds": round(work, 2), "fair_seconds": round(fair, 1), "finished": sum(row["exit"] == 0 for row in rows),
                      "same_weights": sum(row["same_weights"] for row in rows), "fastest": ratios[0],
                      "median": ratios[len(ratios) // 2], "slowest": ratios[-1]}))
    return 0 if all(row["same_weights"] for row in rows) and ratios[-1] <= 3 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="epipe-share-") as folder:
        return crowd(flags, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
