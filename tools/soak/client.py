"""Honest clients."""
import shutil
import time

RUN = ["--model", "cnn", "--chunks", "2", "--batch", "32", "--seed", "3", "--momentum", "0.9", "--clip", "1", "--epochs", "50",
       "--codec", "dct:1", "--max-steps", "40", "--checkpoint-every", "5", "--threads", "1"]
HUNG_SECONDS = 180  # without a step of an honest client


class Client:
    """An honest one: trains, is started again whenever it ends early, and begins the next run when one is done."""

    def __init__(self, soak, number):
        self.soak, self.number, self.runs, self.starts = soak, number, 0, 0
        self.folder = soak.run_disk.path / f"client-{number}"
        self.process = None
        self.steps, self.moved = 0, time.monotonic()
        self.begin()

    def begin(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.start()

    def start(self):
        has_checkpoint = any((self.folder / "checkpoints").glob("step-*"))  # `unfinished` is of one who was killed in its first save
        if not has_checkpoint:
            shutil.rmtree(self.folder, ignore_errors=True)
        flags = ["--resume"] if has_checkpoint else RUN
        command = ["train", "--connect", f"127.0.0.1:{self.soak.link.port}", "--tls", str(self.soak.tls), "--run-dir", str(self.folder),
                   "--timeout", "10", "--reconnect", "60", *flags]
        self.log = self.soak.folder / f"client-{self.number}.log"
        self.process = self.soak.start(command, self.log)
        self.starts += 1

    def watch(self):
        """True when a run is done; RuntimeError where it hangs or has the wrong weights."""
        metrics = self.folder / "metrics.jsonl"
        size = metrics.stat().st_size if metrics.exists() else 0
        if size != self.steps:
            self.steps, self.moved = size, time.monotonic()
        if time.monotonic() - self.moved > HUNG_SECONDS:
            raise RuntimeError(f"client {self.number} made no step for {HUNG_SECONDS} s; its log: {self.log}")
        code = self.process.poll()
        if code is None:
            return False
        said = self.log.read_text(errors="replace").rsplit("=== start", 1)[-1]
        if code == 0 and "stopped" not in said:
            if (self.folder / "model.safetensors").read_bytes() != self.soak.expected:
                raise RuntimeError(f"client {self.number} ended with other weights than an undisturbed run: {self.folder}")
            self.runs += 1
            self.moved = time.monotonic()
            return True
        if code == 2:
            raise RuntimeError(f"client {self.number} was refused by its own flags: {said[-500:]}")
        self.start()
        time.sleep(0.1)
        return False
