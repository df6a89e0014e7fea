#!/usr/bin/env python3
"""Client and server with a delay in between: samples/s of gpipe and 1f1b, with their own limits and with --in-flight auto, and of --delay 1.

  bench/distance/run.py --epipe build/epipe --delays 0,10,50,100 --out bench/distance/results.jsonl

MobileNetV2 at 64 px on noise of ten classes, batch 128, 16 chunks, dct:1, first layer and classifier at the client, two workers of one
thread. A line of JSON for each run; bench/distance/table.py makes the table.
"""
import argparse
import array
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

LATE = "delay-1"  # gradients one step late, which has an order of its own
HERE = pathlib.Path(__file__).resolve().parent
MODEL = ["--model", "mobilenet_v2", "--cuts", "1,19", "--place", "0,1,0"]
TRAINING = ["--batch", "128", "--chunks", "16", "--codec", "dct:1", "--lr", "0.01", "--seed", "1", "--error-every", "0"]


def write_npy(path, shape, values):
    kind = {"f": "<f4", "q": "<i8"}[values.typecode]
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + values.tobytes())


def turned(values, at):
    return values[at:] + values[:at]


def write_data(folder):
    """Ten steps of images for training, few for validation, which is not timed."""
    folder.mkdir()
    draw = random.Random(1)
    for part, count in (("train", 1280), ("val", 16)):
        noise = array.array("f", (draw.gauss(0, 1) for _ in range(3 * 64 * 64)))
        images = array.array("f")
        for _ in range(count):  # the same noise, turned: drawing all of it takes longer than training
            images.extend(turned(noise, draw.randrange(len(noise))))
        write_npy(folder / f"{part}_x.npy", (count, 3, 64, 64), images)
        write_npy(folder / f"{part}_y.npy", (count,), array.array("q", (draw.randrange(10) for _ in range(count))))


def started(command, word=""):
    """The process and the first line it prints that has the word."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        if word in line:
            return process, line.strip()
    sys.exit(f"{command[0]} ended")


def steps_of(run_dir):
    lines = [json.loads(line) for line in open(run_dir / "metrics.jsonl")]
    return [line for line in lines if line["kind"] == "step"]


def setting(run_dir, key):
    for line in open(run_dir / "config.toml"):
        if line.startswith(key + " = "):
            return line.split(" = ", 1)[1].strip().strip('"')
    return ""


def order_flags(schedule, in_flight):
    if schedule == LATE:
        return ["--delay", "1"]
    return ["--schedule", schedule, *(["--in-flight", in_flight] if in_flight else [])]


def train(flags, folder, port, schedule, in_flight):
    run_dir = folder / f"run-{time.monotonic_ns()}"
    command = [flags.epipe, "train", *MODEL, *TRAINING, "--data", f"npy:{folder / 'data'}", "--max-steps", str(flags.steps),
               *order_flags(schedule, in_flight),
               "--connect", f"127.0.0.1:{port}", "--tls", str(folder / "tls"), "--run-dir", str(run_dir)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout)
    return run_dir


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epipe", default="build/epipe")
    parser.add_argument("--delays", default="0,10,50,100", help="ms, one way")
    parser.add_argument("--schedules", default=f"gpipe,1f1b,{LATE}")
    parser.add_argument("--in-flight", default=",auto", help="values of --in-flight; an empty one leaves it out")
    parser.add_argument("--steps", type=int, default=6, help="of each run, at most 10; the first is left out, and the last where steps overlap")
    parser.add_argument("--rounds", type=int, default=1, help="all settings take turns, so that what else the machine does meets all of them")
    parser.add_argument("--out", default=str(HERE / "results.jsonl"))
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_data(folder / "data")
        subprocess.run([flags.epipe, "serve", "--init-tls", str(folder / "tls")], check=True, stdout=subprocess.DEVNULL)
        server, says = started([flags.epipe, "serve", "--listen", "127.0.0.1:0", "--tls", str(folder / "tls"), "--state-dir",
                                str(folder / "state")], "listening on ")
        try:
            for delay in flags.delays.split(",") * flags.rounds:
                proxy, port = started([sys.executable, str(HERE / "delay_proxy.py"), "--to", says.split("listening on ")[1].split()[0], "--delay-ms", delay])
                for schedule in flags.schedules.split(","):
                    for in_flight in [""] if schedule == LATE else flags.in_flight.split(","):
                        run_dir = train(flags, folder, port, schedule, in_flight)
                        # The first step fills the pipeline; steps that overlap drain it again, in the last one.
                        steps = steps_of(run_dir)[1:-1] if schedule == LATE else steps_of(run_dir)[1:]
                        seconds = sorted(step["seconds"] for step in steps)
                        line = {"delay_ms": float(delay), "schedule": schedule, "in_flight": in_flight or "own",
                                "chosen": setting(run_dir, "in-flight"), "costs": setting(run_dir, "schedule-costs"),
                                "seconds": seconds, "samples_per_s": 128 / statistics.median(seconds)}
                        print(json.dumps(line), flush=True)
                        with open(flags.out, "a") as out:
                            out.write(json.dumps(line) + "\n")
                proxy.kill()
                proxy.wait()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
