"""examples/python, as a user runs them."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

import torch

import epipe
from support import EXAMPLES_WITH_A_SERVER, Server, TempFolder, examples_of, failures_of, main

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


def run(name, *arguments):
    done = subprocess.run([sys.executable, EXAMPLES / name, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{name}: {done.returncode}\n{done.stdout}")
    return done.stdout


def names_for(help_of):
    """What the examples of a help page take for granted."""
    torch.manual_seed(1)
    front = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32 * 16 * 16, 16)) if help_of == "epipe" else torch.nn.Linear(16, 16)
    head = torch.nn.Linear(16, 3)
    return {"epipe": epipe, "torch": torch, "x": torch.randn(8, 16), "labels": torch.arange(8) % 3, "front": front, "head": head,
            "criterion": torch.nn.functional.cross_entropy, "optimizer": torch.optim.SGD([*front.parameters(), *head.parameters()], lr=0.02)}


class TheHelp(TempFolder):
    def test_of_remote_stages_has_examples_that_run(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        torch.jit.script(torch.nn.Linear(16, 16)).save("middle.pt")
        server = Server(self.folder, "--models", self.folder).start()
        self.addCleanup(server.stop)
        examples = {name: example for module in EXAMPLES_WITH_A_SERVER for name, example in examples_of(module).items()}
        late = ("step", "close", "end")  # what leaves the stage as others do not expect it
        stage = None
        for name in sorted(examples, key=lambda name: (name.rpartition(".")[2] in late, name)):
            if stage is None:
                stage = epipe.RemoteStage(server.address, "torchscript:middle.pt", insecure=True, run_dir=self.folder / name)
                self.addCleanup(stage.close)
                stage(torch.zeros(8, 16))  # later ones do not wait
            stage.zero_grad()
            example = examples[name]
            example.globs = {**names_for(name), "stage": stage}
            for part in example.examples:
                part.source = part.source.replace('"host:7000"', f'"{server.address}"').replace('tls="tls"', "insecure=True")
            self.assertEqual(failures_of(example), "", name)
            if example.globs["stage"] is not stage:
                example.globs["stage"].end()
            if name.rpartition(".")[2] in ("close", "end"):
                stage = None


class Examples(TempFolder):
    def test_a_script_with_a_cut_trains_and_counts(self):
        said = run("cut_in_a_script.py", "dct:0.5", "ec:2")
        self.assertLess(float(re.search(r"loss (\S+)", said)[1]), 2.3)
        rates = [float(rate) for rate in re.findall(r"(\S+) bits per value", said)]
        self.assertEqual(len(rates), 2)
        self.assertLess(rates[0], 0.55)
        self.assertLess(rates[1], 2.1)

    @unittest.skipUnless(importlib.util.find_spec("torchvision"), "torchvision is not installed (Debian: python3-torchvision)")
    def test_mobilenet_v2_trains_with_its_middle_on_a_server(self):
        models = self.folder / "models"
        models.mkdir()
        run("remote_middle.py", "--save", models / "middle.pt")
        server = Server(self.folder, "--models", models).start()
        self.addCleanup(server.stop)
        said = run("remote_middle.py", server.address, models / "middle.pt", "--steps", "3")
        self.assertEqual(len(re.findall(r"step \d: loss", said)), 3, said)
        self.assertLess(float(re.search(r"(\S+) bits per activation", said)[1]), 1.1)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed (pip install transformers)")
    def test_a_decoder_of_transformers_learns_with_lora_on_a_server(self):
        import transformers
        config = transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=4, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
                                         attn_pdrop=0.0)
        transformers.GPT2LMHeadModel(config).save_pretrained(self.folder / "gpt2", safe_serialization=True)
        server = Server(self.folder).start()
        self.addCleanup(server.stop)
        said = run("lora_on_a_server.py", server.address, self.folder / "gpt2", "--steps", "16", "--tokens", "16")
        losses = [float(loss) for loss in re.findall(r"step \d+: loss (\S+)", said)]
        self.assertEqual(len(losses), 16, said)
        self.assertLess(losses[-1], losses[0] - 0.05, said)
        self.assertIn("4 matrices of the adapter, 1024 values", said)


if __name__ == "__main__":
    main()
