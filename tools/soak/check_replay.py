#!/usr/bin/env python3
"""Whether the seed of a failure replays it: soak.py with a program that has a planted fault, a client that is killed cannot be started
again, fails after the first fault that kills one, with the seed that it says; that seed fails there again, and another one elsewhere.

    check_replay.py build/epipe"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOAK = pathlib.Path(__file__).parent / "soak.py"
FAULTS = 40
SEEDS = (7, 4)  # whose first kill comes early, before anything else can end a client
PLANTED = """#!/usr/bin/env bash
if [ "$1" = train ] && [[ " $* " =~ \\ ([^ ]*)/runs/client-([0-9])\\  ]]; then
  mkdir "{folder}/$(basename "${{BASH_REMATCH[1]}}")-${{BASH_REMATCH[2]}}" 2> /dev/null || {{ echo "planted: not a second time"; exit 2; }}
fi
exec "{program}" "$@"
"""


def first_kill(seed):
    listed = subprocess.run([sys.executable, SOAK, "--list", "--seed", str(seed), "--faults", str(FAULTS)], check=True, capture_output=True,
                            text=True).stdout
    return next(fault["number"] for fault in map(json.loads, listed.splitlines()) if fault["kind"] == "kill_client") + 1


def failure(program, seed):
    """The seed it says, after how many faults, and why."""
    done = subprocess.run([sys.executable, SOAK, "--program", program, "--seed", str(seed), "--faults", str(FAULTS)], capture_output=True,
                          text=True)
    found = re.search(r"after fault (\d+): (.*?)\n--seed", done.stderr, re.DOTALL)
    said = re.search(r"--seed (\d+) --faults (\d+) draws the same", done.stderr)
    if done.returncode != 1 or not found or not said:
        sys.exit(f"seed {seed}: expected a failure and its seed, got exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return int(said[1]), int(found[1]), " ".join(found[2].split())


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="epipe-planted-") as folder:
        os.environ["TMPDIR"] = folder  # what failed runs leave goes with it
        planted = pathlib.Path(folder, "epipe")
        planted.write_text(PLANTED.format(folder=folder, program=program))
        planted.chmod(0o755)
        for seed in SEEDS:
            expected = first_kill(seed)
            for repeated in (False, True):
                for used in pathlib.Path(folder).glob("*-[01]"):
                    used.rmdir()
                seed, after, why = failure(str(planted), seed)
                print(f"{'again, ' if repeated else ''}seed {seed}: expected after fault {expected}, failed after {after}: {why}", flush=True)
                # The next fault may come before the client is missed.
                if not expected <= after <= expected + 2 or "planted" not in why:
                    sys.exit(f"seed {seed}: expected the planted failure after fault {expected}, got it after {after}: {why}")
    print("the seed of a failure replays it")


if __name__ == "__main__":
    main()
