"""epipe.train, epipe.metrics and epipe.report: the program's own results."""

import contextlib
import importlib.util
import io
import json
import sys
import unittest
import unittest.mock

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

    def test_is_rows_for_a_table(self):
        lines, _ = self.train()
        steps = lines.steps
        self.assertEqual(len(steps), 4)
        self.assertFalse([row for row in steps if any(isinstance(value, (list, dict)) for value in row.values())])
        written = json.loads((self.folder / "run" / "metrics.jsonl").read_text().splitlines()[0])
        self.assertEqual(steps[0]["wire_bytes"], sum(cut["wire_bytes"] for cut in written["cuts"]))
        self.assertEqual(steps[0]["cut1_forward_wire_bytes"],
                         next(cut["wire_bytes"] for cut in written["cuts"] if (cut["cut"], cut["direction"]) == (1, "forward")))
        self.assertEqual(steps[0]["loss"], written["loss"])
        self.assertEqual(len(lines.epochs), 1)
        self.assertIn("val_metric", lines.epochs[0])

    def test_is_shown_by_a_notebook(self):
        lines, _ = self.train()
        with unittest.mock.patch.dict(sys.modules, {"matplotlib": None, "matplotlib.figure": None}):
            self.assertRegex(lines._repr_html_(), "<table><tr>.*<th>val_metric</th>")
            with self.assertRaisesRegex(ImportError, "pip install matplotlib"):
                lines.plot()
        page = epipe.report(self.folder / "run")
        self.assertIn("&lt;svg", page._repr_html_())

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed (make check does: packages-check.txt)")
    def test_is_plotted(self):
        lines, _ = self.train()
        loss, validation, wire = lines.plot().axes
        self.assertEqual(list(loss.lines[0].get_ydata()), [row["loss"] for row in lines.steps])
        self.assertEqual(list(wire.lines[0].get_ydata()), [row["wire_bytes"] for row in lines.steps])
        self.assertEqual(len(validation.lines[0].get_ydata()), 1)
        self.assertIn("data:image/png;base64,", lines._repr_html_())

    def test_that_fails_says_why(self):
        with self.assertRaisesRegex(epipe.ProgramFailed, "unknown model") as failed:
            self.train(model="nonet")
        self.assertEqual(failed.exception.code, 2)
        with self.assertRaisesRegex(epipe.ProgramFailed, "no-such-flag"):
            self.train(no_such_flag=1)
        with self.assertRaisesRegex(ValueError, "expected run_dir"):
            epipe.train({"model": "mlp"})
        for wrong in (3, None, ["--model"], {3: 4}):
            for call in (epipe.train, epipe.plan):
                with self.assertRaisesRegex(TypeError, "config: expected a dictionary of flags by name"):
                    call(wrong)
        for call in (epipe.metrics, epipe.report):
            with self.assertRaisesRegex(TypeError, "run_dir: expected a path, got 3"):
                call(3)
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
