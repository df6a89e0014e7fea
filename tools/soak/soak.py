#!/usr/bin/env python3
"""Trains as client and server under faults, one after the other, and demands the weights of a run that nobody disturbed.

    soak.py --program build/epipe [--faults 1000] [--seconds S] [--seed N] [--keep] [--record FILE]

A seed is a sequence of faults: kind, what it hits, and when, drawn before the first one. It is printed, and `--seed` draws the same again.
What the machine does in between is not part of it. Exit code 0: every run ended with the right weights, nothing hung, nothing grew."""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import strangers
from client import RUN, Client
from faults import Disk, faults_of
from link import Link

SAMPLED = 50  # faults between two looks at the server's size
MORE_FILES, MORE_THREADS = 2, 2  # that an idle server may have after the second half; one for each session would be dozens
MORE_MB = 24  # and memory: allocators keep some, by what threads did last
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


class Soak:
    def __init__(self, flags):
        self.flags = flags
        self.program = str(pathlib.Path(flags.program).resolve())
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="epipe-soak-"))
        self.tls = self.folder / "tls"
        self.clock = self.folder / "clock"
        self.environment = dict(os.environ, OMP_NUM_THREADS="1")
        self.has_clock = os.path.exists(FAKETIME)
        if self.has_clock:
            self.clock.write_text("+0")
            self.environment.update(LD_PRELOAD=FAKETIME, FAKETIME_TIMESTAMP_FILE=str(self.clock), FAKETIME_NO_CACHE="1",
                                    FAKETIME_DONT_FAKE_MONOTONIC="1")
        self.run_disk = Disk(self.folder / "runs")
        self.state_disk = Disk(self.folder / "state")
        self.later = []  # (time, what to do): faults that end
        self.server_starts = 0
        self.done = 0
        self.counts = {}

    def start(self, arguments, log):
        with open(log, "ab") as file:
            file.write(b"=== start\n")
            file.flush()
            return subprocess.Popen([self.program, *arguments], stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=self.environment)

    def start_server(self):
        self.server = self.start(["serve", "--listen", f"127.0.0.1:{self.port}", "--tls", str(self.tls), "--state-dir",
                                  str(self.state_disk.path / "sessions"), "--state-quota", "0", "--max-sessions", "8", "--timeout", "10",
                                  "--idle-timeout", "30", "--drain-time", "5", "--audit-log", str(self.folder / "audit.jsonl")],
                                 self.folder / "server.log")
        self.server_starts += 1

    def prepare(self):
        subprocess.run([self.program, "serve", "--init-tls", str(self.tls)], check=True, stdout=subprocess.DEVNULL)
        (self.folder / "guess").write_text("guess\n")
        subprocess.run([self.program, "train", "--place", "0,1,0", "--run-dir", str(self.folder / "alone"), *RUN], check=True,
                       stdout=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.expected = (self.folder / "alone" / "model.safetensors").read_bytes()
        self.port = free_port()
        self.link = Link(self.port)
        self.start_server()
        self.clients = [Client(self, number) for number in range(2)]

    def sessions(self):
        """Process ids of the server's sessions; each is a child of the thread that started it."""
        found = []
        for task in pathlib.Path(f"/proc/{self.server.pid}/task").glob("*/children"):
            try:
                found += [int(pid) for pid in task.read_text().split()]
            except OSError:
                pass
        return sorted(found)

    @staticmethod
    def signal(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def stop_for(self, pid, seconds):
        self.signal(pid, signal.SIGSTOP)
        self.later.append((time.monotonic() + seconds, lambda: self.signal(pid, signal.SIGCONT)))

    def inject(self, fault):
        draw = random.Random(fault["seed"])
        client, seconds, kind = self.clients[fault["client"]], fault["seconds"], fault["kind"]
        sessions = self.sessions()
        session = sessions[fault["seed"] % len(sessions)] if sessions else None
        if kind == "kill_client":
            client.process.kill()
        elif kind == "kill_session":
            session and self.signal(session, signal.SIGKILL)
        elif kind == "kill_server":
            self.server.kill()
        elif kind == "drain_server":
            self.server.terminate()
        elif kind == "stop_client":
            self.stop_for(client.process.pid, seconds)
        elif kind == "stop_session":
            session and self.stop_for(session, seconds)
        elif kind == "stop_server":
            self.stop_for(self.server.pid, seconds)
        elif kind == "cut":
            self.link.cut()
        elif kind == "slow":
            self.link.slow(seconds)
        elif kind == "hold":
            self.link.hold(seconds)
        elif kind == "damage":
            self.link.damage_next()
        elif kind in ("full_disk_client", "full_disk_server"):
            disk = self.run_disk if kind == "full_disk_client" else self.state_disk
            disk.fill()
            self.later.append((time.monotonic() + seconds, disk.free))
        elif kind == "clock" and self.has_clock:
            self.clock.write_text(draw.choice(["+30", "-30", "+3600", "-3600", "+86400"]))
            self.later.append((time.monotonic() + seconds, lambda: self.clock.write_text("+0")))
        elif kind in ("garbage", "silent", "huge", "half_handshake"):
            getattr(strangers, kind)(self.port, draw)
        elif kind == "wrong_token":
            process = self.start(["train", "--connect", f"127.0.0.1:{self.port}", "--ca", str(self.tls / "ca.pem"), "--token-file",
                                  str(self.folder / "guess"), "--reconnect", "1", "--max-steps", "1", "--run-dir",
                                  str(self.folder / "guessed")], self.folder / "strangers.log")
            self.later.append((time.monotonic() + 20, lambda: (process.kill(), process.wait())))
        elif kind == "reload":
            self.signal(self.server.pid, signal.SIGHUP)
        elif kind == "admin_garbage":
            self.ask_garbage(draw)

    def ask_garbage(self, draw):
        with socket.socket(socket.AF_UNIX) as end:
            end.settimeout(1)
            try:
                end.connect(str(self.state_disk.path / "sessions/admin/socket"))
                end.sendall(draw.randbytes(draw.randrange(8000)) + b"\n")
            except OSError:
                pass

    def tick(self, until):
        """Watches over everything until this time; begins the next run of a client that is done with one."""
        while True:
            now = time.monotonic()
            for due in [entry for entry in self.later if entry[0] <= now]:
                self.later.remove(due)
                due[1]()
            if self.server.poll() is not None:
                self.start_server()
            for client in self.clients:
                if client.watch():
                    client.begin()
            if now >= until:
                return
            time.sleep(0.05)

    def size_of_server(self):
        pid = self.server.pid
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        resident = int(status.split("VmRSS:")[1].split()[0]) / 1024
        return {"pid": pid, "MB": round(resident, 1), "files": len(os.listdir(f"/proc/{pid}/fd")),
                "threads": len(os.listdir(f"/proc/{pid}/task"))}

    def finish(self):
        """Everything that was begun ends, undisturbed."""
        for _, undo in self.later:
            undo()
        self.later = []
        left = list(self.clients)
        while left:
            left = [client for client in left if not client.watch()]
            if self.server.poll() is not None:
                self.start_server()
            time.sleep(0.05)

    def wait_until_idle(self):
        end = time.monotonic() + 60
        while self.sessions() and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(25)  # connections that say nothing have their time, too
        return self.sessions()

    def run(self):
        begin = time.monotonic()
        self.prepare()
        middle = None
        for fault in faults_of(self.flags.seed, self.flags.faults):
            if self.flags.seconds and time.monotonic() - begin > self.flags.seconds:
                break
            if middle is None and fault["number"] >= self.flags.faults // 2:
                self.finish()
                self.wait_until_idle()
                middle = self.size_of_server()
                for client in self.clients:
                    client.begin()
            self.tick(time.monotonic() + fault["pause"])
            with open(self.folder / "faults.jsonl", "a") as log:
                log.write(json.dumps(fault) + "\n")
            self.inject(fault)
            self.counts[fault["kind"]] = self.counts.get(fault["kind"], 0) + 1
            self.done += 1
            if self.done % SAMPLED == 0:
                self.sample(time.monotonic() - begin)
        self.finish()
        left = self.wait_until_idle()
        self.sample(time.monotonic() - begin)
        self.report(time.monotonic() - begin)
        self.check_growth(middle, left)

    def record(self, entry):
        if self.flags.record:
            with open(self.flags.record, "a") as file:
                file.write(json.dumps(entry) + "\n")

    def sample(self, seconds):
        """How far it is, and how large the server, now."""
        runs = sum(client.runs for client in self.clients)
        try:
            server = self.size_of_server()
        except (OSError, IndexError):
            server = {}  # it was killed this moment: it has no memory any more, or is gone
        self.record({"faults": self.done, "seconds": round(seconds), "runs": runs, "sessions": len(self.sessions()), "server": server})
        print(f"{self.done} faults in {seconds:.0f} s, {runs} runs with the right weights; the server: {json.dumps(server)}", flush=True)

    def check_growth(self, middle, left):
        if left:
            raise RuntimeError(f"sessions {left} still run, though no client does")
        # A client that is killed before its first checkpoint, or between its last one and its goodbye, leaves its session to --state-age.
        extra = set(os.listdir(self.state_disk.path / "sessions")) - {"admin", "usage.json"}
        killed = sum(client.starts - client.runs for client in self.clients)
        if len(extra) > min(killed, 20) or any(len(name) != 32 for name in extra):
            raise RuntimeError(f"runs that ended have left {sorted(extra)} in the state folder")
        now = self.size_of_server()
        print(f"server: {json.dumps(middle)} before the second half of the faults, {json.dumps(now)} after it")
        self.record({"before_second_half": middle, "after_it": now})
        if middle is None or middle["pid"] != now["pid"]:
            if middle is not None:
                raise RuntimeError("the server ended by itself in the second half")
            return
        for what, more in (("MB", MORE_MB), ("files", MORE_FILES), ("threads", MORE_THREADS)):
            if now[what] > middle[what] + more:
                raise RuntimeError(f"the server has grown: expected at most {middle[what]} + {more} {what}, got {now[what]}")

    def report(self, seconds):
        runs = sum(client.runs for client in self.clients)
        starts = sum(client.starts for client in self.clients)
        whole = {"seed": self.flags.seed, "faults": self.done, "seconds": round(seconds), "runs": runs, "client_starts": starts,
                 "server_starts": self.server_starts, "sessions_left": len(os.listdir(self.state_disk.path / "sessions")) - 1,
                 "kinds": self.counts}
        print(json.dumps(whole))
        self.record(whole)
        if runs < 2:
            raise RuntimeError("no run ended")

    def close(self, keep):
        for process in [client.process for client in getattr(self, "clients", [])] + [getattr(self, "server", None)]:
            if process is not None and process.poll() is None:
                self.signal(process.pid, signal.SIGCONT)
                process.kill()
                process.wait()
        for _, undo in self.later:
            undo()
        if hasattr(self, "link"):
            self.link.close()
        if keep:  # what is on the disks goes with them
            for disk in (self.run_disk, self.state_disk):
                disk.free()
                shutil.copytree(disk.path, str(disk.path) + "-kept", ignore=shutil.ignore_patterns("socket"), dirs_exist_ok=True)
        for disk in (self.run_disk, self.state_disk):
            disk.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/epipe")
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many, however many faults there were; 0: all faults")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", action="store_true", help="keep the folder in the end; where something is wrong it stays anyway")
    parser.add_argument("--record", help="append how far it is and how large the server, every 50 faults, as JSON lines")
    parser.add_argument("--list", action="store_true", help="print the faults of the seed, and end")
    flags = parser.parse_args()
    if flags.seed is None:
        flags.seed = random.SystemRandom().randrange(1 << 31)
    if flags.list:
        for fault in faults_of(flags.seed, flags.faults):
            print(json.dumps(fault))
        return 0
    soak = Soak(flags)
    parts = [] if soak.run_disk.mounted else ["disks cannot be filled: mounting takes root"]
    parts += [] if soak.has_clock else ["clocks do not jump: Debian's faketime is not installed"]
    print(f"seed {flags.seed}, {flags.faults} faults, in {soak.folder}" + "".join(f"; {part}" for part in parts), flush=True)
    failed = True
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # and clears away
    try:
        soak.run()
        failed = False
    except (RuntimeError, subprocess.CalledProcessError, OSError) as error:
        print(f"soak: after fault {soak.done}: {error}\n--seed {flags.seed} --faults {flags.faults} draws the same faults again; "
              f"logs are in {soak.folder}", file=sys.stderr)
    finally:
        soak.close(failed or flags.keep)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
