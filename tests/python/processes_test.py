"""Processes around a stage: forked children, workers of a DataLoader, cells that are run again, two clients with one run folder."""

import subprocess
import sys

import torch

import epipe
from remote_stage_test import SGD, WithServer
from support import main

MAKE = """
import os, sys
import torch
import epipe

torch.set_num_threads(1)

def make(**options):
    return epipe.RemoteStage({address!r}, "torchscript:{file}", **{{"codec": "none", "insecure": True, "timeout": 30, **options}})

def train(stage):
    stage(torch.randn(8, 16)).sum().backward()
    stage.step()
"""


class AProcess(WithServer):
    def run_script(self, text, *arguments):
        """What it prints; it must end well, and soon, and without a traceback of its exit."""
        path = self.folder / "script.py"
        path.write_text(MAKE.format(address=self.server.address, file=self.file) + text)
        done = subprocess.run([sys.executable, path, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (0, False), done.stdout + done.stderr)
        return done.stdout.splitlines()

    def test_that_forks_before_its_first_stage_has_stages_in_both(self):
        said = self.run_script("""
child = os.fork()
with make() as stage:
    train(stage)
    print("steps", stage.steps, flush=True)
if child == 0:
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
        self.assertEqual(said, ["steps 1", "steps 1"])

    def test_that_was_forked_after_one_is_told_what_to_do_and_ends_as_any_other(self):
        said = self.run_script("""
stage = make()
train(stage)
y = stage(torch.randn(8, 16))
child = os.fork()
if child == 0:
    for use in (lambda: stage(torch.randn(8, 16)), lambda: y.sum(), stage.close, make):
        try:
            use()
            print("no error")
        except RuntimeError as error:
            print(error)
    sys.exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
y.sum().backward()
stage.step()
print("steps", stage.steps)
sys.exit(code)
""")
        self.assertEqual(len(said), 5)
        for line in said[:3]:
            self.assertRegex(line, "made before the process forked, and belongs to the parent; .* method \"spawn\"")
        self.assertRegex(said[3], "forked after an epipe.RemoteStage had been made in its parent, .* start it by multiprocessing's method \"spawn\"")
        self.assertEqual(said[4], "steps 2")

    def test_has_data_loaders_with_workers(self):
        said = self.run_script("""
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        return torch.full((16,), float(i))

stage = make()
for _ in range(2):
    for x in torch.utils.data.DataLoader(Data(), 16, num_workers=2):
        stage(x).sum().backward()
        stage.step()
print("steps", stage.steps)
""")
        self.assertEqual(said, ["steps 4"])

    def test_that_ends_with_outputs_on_their_way_ends(self):
        said = self.run_script("""
stage = make()
train(stage)
outputs = [stage(torch.randn(8, 16)) for _ in range(4)]
print(len(outputs))
""")
        self.assertEqual(said, ["4"])

    def test_with_a_run_folder_keeps_others_out_until_it_is_killed(self):
        run = self.folder / "run"
        stage = self.stage(run_dir=run)
        attempt = """
try:
    with make(run_dir=sys.argv[1], optimizer={"kind": "sgd", "lr": 0.05, "momentum": 0.9}) as stage:
        train(stage)
        stage.save()
        print("steps", stage.steps)
        if len(sys.argv) > 2:
            os.kill(os.getpid(), 9)
except RuntimeError as error:
    print(error)
"""
        said = self.run_script(attempt, run)
        self.assertRegex(said[0], "run_dir: a stage of another process is at work in .*; end that process, or take another folder")
        stage(torch.randn(8, 16)).sum().backward()  # and goes on
        stage.step()
        stage.save()
        stage.close()
        self.assertEqual(self.run_script(attempt, run), ["steps 2"])
        with self.assertRaises(AssertionError):
            self.run_script(attempt, run, "killed")
        self.assertEqual(self.run_script(attempt, run), ["steps 4"])

    def test_takes_a_run_folder_from_its_own_earlier_stage_as_a_cell_does_that_is_run_again(self):
        run = self.folder / "run"
        first = self.stage(run_dir=run)
        first(torch.randn(8, 16)).sum().backward()
        first.step()
        first.save("saved")
        y = first(torch.randn(8, 16))
        second = self.stage(run_dir=run)
        self.assertEqual((second.steps, second.load()), (1, "saved"))
        for use in (lambda: first(torch.randn(8, 16)), lambda: y.backward(torch.ones(8, 16))):
            with self.assertRaisesRegex(RuntimeError, "the stage is closed; make a new one"):
                use()
        second(torch.randn(8, 16)).sum().backward()
        second.step()
        with self.assertRaisesRegex(ValueError, "another run"):  # and the folder is free again after a failure
            self.stage(run_dir=run, optimizer={**SGD, "momentum": 0.5})
        self.assertEqual(self.stage(run_dir=run).steps, 1)


if __name__ == "__main__":
    main()
