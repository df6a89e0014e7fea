"""The faults of a seed, and the disk that can be filled."""
import random
import subprocess

# kind: how often, relative to the others
FAULTS = {"kill_client": 10, "kill_session": 10, "kill_server": 4, "drain_server": 2, "stop_client": 6, "stop_session": 6,
          "stop_server": 4, "cut": 12, "slow": 8, "hold": 6, "damage": 10, "full_disk_client": 4, "full_disk_server": 4, "clock": 4,
          "garbage": 8, "silent": 6, "huge": 6, "half_handshake": 6, "wrong_token": 4, "reload": 4, "admin_garbage": 4}
ENDS_THE_SERVER = {"kill_server", "drain_server"}
STRANGERS = {"garbage", "silent", "huge", "half_handshake", "wrong_token", "reload", "admin_garbage", "clock", "slow"}


def faults_of(seed, count):
    """The first half may end the server. The second half is for one process of it, so that growth shows."""
    draw = random.Random(seed)
    for number in range(count):
        kinds = {kind: often for kind, often in FAULTS.items() if number < count // 2 or kind not in ENDS_THE_SERVER}
        kind = draw.choices(list(kinds), kinds.values())[0]
        pause = draw.expovariate(1.0) * (0.15 if kind in STRANGERS else 1.2)  # what sends somebody back needs time for a few steps
        yield {"number": number, "pause": pause, "kind": kind,
               "client": draw.randrange(2), "seconds": draw.uniform(0.2, 3), "seed": draw.randrange(1 << 32)}


class Disk:
    """A small file system of its own where root may mount one, which can be filled; otherwise a folder, which cannot."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=48m,mode=0700", "tmpfs", str(path)]
        self.mounted = subprocess.run(mount, stderr=subprocess.DEVNULL).returncode == 0

    def fill(self):
        if not self.mounted:
            return
        try:
            with open(self.path / "filler", "wb", buffering=0) as file:
                while file.write(b"x" * 65536):
                    pass
        except OSError:
            pass

    def free(self):
        (self.path / "filler").unlink(missing_ok=True)

    def close(self):
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=False)
