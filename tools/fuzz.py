#!/usr/bin/env python3
"""The fuzz targets of a build (cmake --preset fuzz): run them, keep what they found, and say what the corpora reach.

    fuzz.py run [--seconds S] [TARGET...]    libFuzzer on each for so long; what reaches new code goes to BUILD/found/TARGET
    fuzz.py grow [TARGET...]                 the smallest inputs of these that reach what fuzz/corpus does not join it
    fuzz.py coverage [TARGET...]             a table: which part of the files that a target is about fuzz/corpus executes

`--build BUILD` is build/libfuzzer where it is not given."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "fuzz" / "corpus"
MOST_BYTES = 4096  # of an input
MOST_KEPT = 2048  # of one that joins the corpus

# What each target is about. Encoders and writers in the same file count as not executed.
ABOUT = {
    "frame": ["wire/frame.cpp", "codec/frame_codec.cpp", "codec/parse.cpp"],
    "entropy": ["codec/entropy_payload.cpp", "codec/token_stream.cpp", "codec/token_tables.cpp", "codec/reflections.cpp",
                "codec/channel_basis.cpp", "codec/channel_means.cpp"],
    "npy": ["data/npy.cpp"],
    "safetensors": ["model/safetensors.cpp", "model/safetensors_header.cpp"],
    "state_dict": ["model/state_dict.cpp", "model/pickle.cpp", "model/zip.cpp"],
    "session": ["session/worker_participant.cpp", "session/local_trainer.cpp", "train/plan.cpp", "train/assemble.cpp"],
    "command": ["session/messages.cpp", "session/step_result.cpp", "base/bounded_json.cpp"],
    "bpe": ["data/text/words.cpp"],
    "glue": ["data/text/glue.cpp", "data/text/tsv.cpp"],
    "files": ["data/cifar.cpp", "data/fetch/tar.cpp", "data/fetch/gunzip.cpp", "data/image/jpeg.cpp", "data/image/png.cpp", "data/text/bpe.cpp"],
    "tokenizer": ["data/text/tokenizer.cpp", "data/text/tokenizer/"],
    "config": ["model/decoder_config.cpp", "model/encoder_config.cpp", "model/config_fields.h"],
    "operator": ["serve/admin_request.cpp", "serve/token_file.cpp", "serve/usage_book.cpp", "session/step_totals.cpp"],
    "peer": ["monitor/http_request.cpp", "monitor/http_address.cpp", "boundary/reused_frames.cpp", "transport/measure_link.cpp",
             "transport/c10d/store_server.cpp"],
    "run": ["report/metrics.cpp", "report/trace.cpp", "report/inspection.cpp", "experiment/csv.cpp", "report/charts.cpp",
            "report/line_chart.cpp", "report/timeline.cpp"],
    "plan": ["planner/inputs_json.cpp", "planner/inputs.cpp", "planner/parse.cpp", "cli/costs_file.cpp", "train/schedule_costs.cpp",
             "schedule/placement.cpp"],
    "folder": ["session/checkpoint.cpp", "data/text/token_store.cpp", "boundary/frame_store.cpp", "model/adapter.cpp",
               "model/hf_folder.cpp", "cli/resume.cpp", "transport/grpc/tls_files.cpp"],
}


class Target:
    def __init__(self, build, name):
        self.name = name
        self.program = build / "fuzz" / f"{name}_fuzz"
        self.found = build / "found" / name
        self.found.mkdir(parents=True, exist_ok=True)
        scratch = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
        self.environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=0", LLVM_PROFILE_FILE="/dev/null", TMPDIR=scratch, OMP_NUM_THREADS="1")

    def call(self, *arguments, profile=None, **keywords):
        environment = dict(self.environment, LLVM_PROFILE_FILE=str(profile)) if profile else self.environment
        return subprocess.run([self.program, *map(str, arguments)], env=environment, check=True, **keywords)

    def run(self, seconds):
        """Raises where it found something; libFuzzer says what, and writes the input to BUILD/found."""
        log = self.found.parent / f"{self.name}.log"
        print(f"{self.name}: {seconds} s, {log}", flush=True)
        with open(log, "w") as file:
            self.call(f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", "-rss_limit_mb=4096", "-timeout=30",
                      f"-artifact_prefix={self.found.parent}/{self.name}-", "-print_final_stats=1", self.found, CORPUS / self.name, stdout=file,
                      stderr=file)

    def grow(self):
        before = set(os.listdir(CORPUS / self.name))
        self.call("-merge=1", f"-max_len={MOST_KEPT}", CORPUS / self.name, self.found, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        new = sorted(set(os.listdir(CORPUS / self.name)) - before)
        size = sum((CORPUS / self.name / name).stat().st_size for name in new)
        print(f"{self.name}: {len(new)} inputs joined, {size} bytes")

    def coverage(self, scratch):
        raw, whole = scratch / f"{self.name}.profraw", scratch / f"{self.name}.profdata"
        done = self.call("-runs=0", CORPUS / self.name, profile=raw, stderr=subprocess.PIPE, text=True)
        edges = next(int(line.split("cov: ")[1].split()[0]) for line in done.stderr.splitlines() if "INITED cov: " in line)
        subprocess.run([tool("llvm-profdata"), "merge", "-sparse", raw, "-o", whole], check=True)
        text = subprocess.run([tool("llvm-cov"), "export", "-summary-only", f"-instr-profile={whole}", self.program], check=True,
                              capture_output=True, text=True).stdout
        lines = functions = [0, 0]
        files = 0
        for file in json.loads(text)["data"][0]["files"]:
            path = file["filename"].split("/src/epipe/")[-1]
            if not any(path == about or (about.endswith("/") and path.startswith(about)) for about in ABOUT[self.name]):
                continue
            summary = file["summary"]
            lines = [lines[0] + summary["lines"]["covered"], lines[1] + summary["lines"]["count"]]
            functions = [functions[0] + summary["functions"]["covered"], functions[1] + summary["functions"]["count"]]
            files += 1
        print(f"| `{self.name}` | {len(os.listdir(CORPUS / self.name))} | {edges} | {files} | {lines[0]} of {lines[1]} | "
              f"{100 * lines[0] / max(1, lines[1]):.0f} % | {functions[0]} of {functions[1]} |", flush=True)


def tool(name):
    """Debian's clang is a version of its own, and its tools have that number in their name."""
    for folder in os.environ["PATH"].split(":"):
        found = sorted(pathlib.Path(folder).glob(f"{name}*"))
        if found:
            return str(found[0])
    sys.exit(f"{name} was not found; install llvm (Debian: apt-get install llvm)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["run", "grow", "coverage"])
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "libfuzzer")
    parser.add_argument("--seconds", type=int, default=60)
    flags = parser.parse_intermixed_args()
    written = sorted(path.name.removesuffix("_fuzz.cpp") for path in (ROOT / "fuzz").glob("*_fuzz.cpp"))
    if written != sorted(ABOUT):
        sys.exit(f"expected ABOUT to have the targets of fuzz/, got a difference in {set(written) ^ set(ABOUT)}")
    targets = [Target(flags.build, name) for name in flags.targets or ABOUT]
    if flags.action == "coverage":
        print("| target | inputs | edges | files | lines executed | | functions |\n|---|---|---|---|---|---|---|")
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        for target in targets:
            try:
                if flags.action == "run":
                    target.run(flags.seconds)
                elif flags.action == "grow":
                    target.grow()
                else:
                    target.coverage(pathlib.Path(scratch))
            except subprocess.CalledProcessError as error:
                failed.append(target.name)
                print(f"{target.name}: {error}", file=sys.stderr)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the inputs are in {flags.build}/found")


if __name__ == "__main__":
    main()
