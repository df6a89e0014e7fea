#!/usr/bin/env python3
"""Whether a leak of one descriptor for each session is found: soak.py fails with a program whose server has one, and says so.

    check_growth.py build/epipe [COMPILER]

The leak is planted by a preloaded library: the socket pair a server makes for a session's reports gets a third end, which stays open."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOAK = pathlib.Path(__file__).parent / "soak.py"
FAULTS, SEED = 60, 22  # its second half kills eight sessions
LEAK = """#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
extern "C" int socketpair(int domain, int type, int protocol, int ends[2]) noexcept {
  using Call = int (*)(int, int, int, int*);
  const int made = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "socketpair"))(domain, type, protocol, ends);
  if (made == 0 && (type & 0xf) == SOCK_SEQPACKET) (void)fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
  return made;
}
"""
PLANTED = """#!/usr/bin/env bash
if [ "$1" = serve ] && [ "$2" = --listen ]; then export LD_PRELOAD="$LD_PRELOAD {folder}/leak.so"; fi
exec "{program}" "$@"
"""


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    compiler = sys.argv[2] if len(sys.argv) > 2 else shutil.which("c++")
    with tempfile.TemporaryDirectory(prefix="epipe-planted-") as folder:
        os.environ["TMPDIR"] = folder  # what the failed run leaves goes with it
        pathlib.Path(folder, "leak.cpp").write_text(LEAK)
        subprocess.run([compiler, "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", f"{folder}/leak.so", f"{folder}/leak.cpp", "-ldl"], check=True)
        planted = pathlib.Path(folder, "epipe")
        planted.write_text(PLANTED.format(folder=folder, program=program))
        planted.chmod(0o755)
        done = subprocess.run([sys.executable, SOAK, "--program", str(planted), "--seed", str(SEED), "--faults", str(FAULTS)],
                              capture_output=True, text=True)
    print(done.stdout + done.stderr)
    found = re.search(r"the server has grown: expected at most .* files, got \d+", done.stderr)
    if done.returncode != 1 or not found:
        sys.exit(f"expected a server that has grown by files, got exit code {done.returncode}")
    print("a leak of a descriptor for each session is found")


if __name__ == "__main__":
    main()
