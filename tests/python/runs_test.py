"""epipe.train, epipe.metrics and epipe.report: the program's own results."""

import contextlib
import io
import json
import unittest

import epipe
from support import TempFolder, main

RUN = {"model": "mlp", "place": [0, 1, 0], "chunks": 2, "codec": "ec:2", "batch": 32, "max_steps": 4, "lr": 0.1, "no_shuffle": True}


class APlan(unittest.TestCase):
    def test_has_flags_that_train_takes(self):
        plan = epipe.plan({"model": "mlp", "batch": 32, "workers": ["client:cpu@2GF", "server:host:7000@200GF"],
                           "link": ["up=10M", "down=100M", "delay=20ms"], "codec": "uniform:8"})
        self.assertEqual(plan["flags"]["place"], [0, 1, 0])
        self.assertEqual(plan["flags"]["codec"], "uniform:8")
        self.assertGreater(plan["predicted"]["samples_per_s"], 0)

    def test_that_is_impossible_says_why(self):
        with self.assertRaisesRegex(epipe.ProgramFailed, "a link of rate 0") as failed:
            epipe.plan({"model": "mlp", "workers": "client:cpu@2GF,server:host:7000@200GF", "link": "up=0"})
        self.assertEqual(failed.exception.code, 2)


class ARun(TempFolder):
    def train(self, **more):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            lines = epipe.train({**RUN, "run_dir": self.folder / "run", **more})
        return lines, said.getvalue()

    def test_returns_what_the_program_writes(self):
        lines, said = self.train()
        written = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(lines, written)
        self.assertEqual([line["step"] for line in lines if line["kind"] == "step"], [0, 1, 2, 3])
        self.assertEqual(epipe.metrics(self.folder / "run"), written)
        self.assertIn("4 steps, validation accuracy", said)
        self.assertIn('codec = "ec:2"', (self.folder / "run" / "config.toml").read_text())

    def test_continues(self):
        self.train()
        lines, _ = self.train(resume=True, max_steps=6)
        self.assertEqual([line["step"] for line in lines if line["kind"] == "step"][-1], 5)

    def test_becomes_a_page(self):
        self.train()
        page = epipe.report(self.folder / "run", self.folder / "page.html")
        self.assertEqual(page, self.folder / "page.html")
        self.assertIn("<svg", page.read_text())

    def test_that_fails_says_why(self):
        with self.assertRaisesRegex(epipe.ProgramFailed, "unknown model") as failed:
            self.train(model="nonet")
        self.assertEqual(failed.exception.code, 2)
        with self.assertRaisesRegex(epipe.ProgramFailed, "no-such-flag"):
            self.train(no_such_flag=1)
        with self.assertRaisesRegex(ValueError, "expected run_dir"):
            epipe.train({"model": "mlp"})
        with self.assertRaisesRegex(FileNotFoundError, "expected the metrics of a run"):
            epipe.metrics(self.folder / "none")
        with self.assertRaises(epipe.ProgramFailed):
            epipe.report(self.folder / "none")

    def test_that_was_cut_off_has_the_lines_that_are_whole(self):
        self.train()
        path = self.folder / "run" / "metrics.jsonl"
        whole = epipe.metrics(self.folder / "run")
        path.write_text(path.read_text() + '{"kind": "st')
        self.assertEqual(epipe.metrics(self.folder / "run"), whole)


if __name__ == "__main__":
    main()
