"""What the Python tests share: the program, servers, and a main."""

import doctest
import importlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import torch

import epipe


class TempFolder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="epipe-python-")
        self.folder = pathlib.Path(self._folder.name)
        self.addCleanup(self._folder.cleanup)


def run_program(*arguments):
    """What `epipe ARGUMENTS` prints; fails where it fails."""
    done = subprocess.run([epipe.program(), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"epipe {' '.join(map(str, arguments))}: {done.returncode}\n{done.stdout}")
    return done.stdout


class Server:
    """`epipe serve` on this machine, plaintext; start() again continues with the same state and address."""

    def __init__(self, folder, *arguments):
        self.folder = pathlib.Path(folder)
        self.arguments = arguments
        self.address = "127.0.0.1:0"
        self.process = None

    def start(self):
        self.out = self.folder / f"serve-{time.monotonic_ns()}.txt"
        command = [epipe.program(), "serve", "--insecure", "--listen", self.address, "--state-dir", str(self.folder / "state")]
        with open(self.out, "w") as out:
            self.process = subprocess.Popen([*command, *map(str, self.arguments)], stdout=out, stderr=subprocess.STDOUT)
        for _ in range(600):
            said = [line for line in self.out.read_text().splitlines() if line.startswith("listening on ")]
            if said:
                self.address = said[0].split()[2].rstrip(",")
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError("the server does not listen:\n" + self.out.read_text())

    def kill(self):
        """With its sessions, as a power cut does."""
        pid = self.process.pid
        children = [int(child) for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
        for one in [pid, *children]:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.kill()


# Whose help has examples: those that need no server, and those that do.
EXAMPLES_ALONE = ("epipe.codec", "epipe.cutting", "epipe.runs", "epipe.run_metrics")
EXAMPLES_WITH_A_SERVER = ("epipe", "epipe.async_output", "epipe.remote_stage")


def examples_of(module):
    """The examples of a module's help, by the name of what they are about; `epipe` is the page itself."""
    tests = doctest.DocTestFinder(recurse=module != "epipe").find(importlib.import_module(module), module, globs={})
    return {test.name: test for test in tests if test.examples}


def failures_of(example):
    """What is wrong with an example when it is run; its globs are what it finds."""
    said = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=said.append, clear_globs=False)
    return "".join(text for text in said if "File" in text)


def equal(left, right):
    """Whether two dictionaries hold the same tensors, bit for bit."""
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    done = unittest.main(argv=[sys.argv[0], "-q", *sys.argv[1:]], exit=False)
    sys.exit(not done.result.wasSuccessful())  # from Python 3.12 on, unittest itself calls it a failure if all tests are skipped
