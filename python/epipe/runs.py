"""The program `epipe`, and its output."""

import html
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from . import _arguments
from .run_metrics import Metrics


class Page(type(pathlib.Path())):
    """The path of a page that a notebook can show."""

    def _repr_html_(self):
        return f'<iframe srcdoc="{html.escape(self.read_text(), quote=True)}" width="100%" height="700"></iframe>'


class ProgramFailed(RuntimeError):
    """The program ended with an error; the text is the program's. `code` is 1 for a failure and 2 for wrong usage."""

    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


def program():
    """The path of the program: $EPIPE_PROGRAM, the one of this package, or `epipe` on the PATH.

        >>> os.access(epipe.program(), os.X_OK)
        True
    """
    named = os.environ.get("EPIPE_PROGRAM")
    own = pathlib.Path(__file__).parent / "bin" / "epipe"
    found = named or (str(own) if own.exists() else shutil.which("epipe"))
    if not found:
        raise FileNotFoundError("the program epipe was not found: build it (make build) and name it in EPIPE_PROGRAM")
    return found


_ON_BY_DEFAULT = ("shuffle",)  # flags that are turned off: --no-shuffle


def _named_flags(config):
    if not hasattr(config, "items") or not all(isinstance(name, str) for name in config):
        raise TypeError(f"config: expected a dictionary of flags by name, got {config!r}")
    return {name.replace("-", "_"): value for name, value in config.items()}


def _flags(config):
    """{"lr_schedule": "cosine", "place": [0, 1, 0], "resume": True} -> --lr-schedule=cosine --place=0,1,0 --resume"""
    flags = []
    for name, value in config.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            if name in _ON_BY_DEFAULT:
                flags += [] if value else [f"--no-{flag}"]
            elif value:
                flags.append(f"--{flag}")
        elif isinstance(value, (list, tuple)):
            flags.append(f"--{flag}={','.join(map(str, value))}")
        elif value is not None:
            flags.append(f"--{flag}={value}")
    return flags


def _run(arguments, echo):
    """Runs the program and shows its output; Ctrl-C reaches it once, and it saves before it ends."""
    child = subprocess.Popen([program(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    said = []
    interrupted = False
    with child.stdout as lines:
        while True:
            try:
                for line in lines:
                    said.append(line)
                    if echo:
                        sys.stdout.write(line)
                        sys.stdout.flush()
                code = child.wait()
                break
            except KeyboardInterrupt:
                child.send_signal(signal.SIGINT if not interrupted else signal.SIGKILL)
                interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    if code != 0:
        reason = [line for line in said if line.startswith("epipe: ")] or said[-1:]
        raise ProgramFailed("".join(reason).removeprefix("epipe: ").strip() or f"{program()} ended with {code}", code)
    return "".join(said)


def train(config, echo=True):
    """`epipe train` with these flags; returns the metrics, like `metrics(run_dir)`.

        >>> steps = epipe.train({"model": "mlp", "place": [0, 1, 0], "codec": "ec:2", "max_steps": 3,
        ...                      "run_dir": "runs/first"}, echo=False)
        >>> steps[0]["kind"]
        'step'

    config: flags by name, `lr_schedule` or `lr-schedule`; lists for flags with several values; True for flags without
    a value, such as `resume`.
    echo: print the program's output while it runs. It runs as a separate process: Ctrl-C lets it save, then raises
    KeyboardInterrupt. Raises `ProgramFailed` with the program's reason.
    """
    config = _named_flags(config)
    if not config.get("run_dir"):
        raise ValueError("config: expected run_dir, the folder for what the run writes")
    config["run_dir"] = os.path.abspath(os.fspath(config["run_dir"]))
    _run(["train", *_flags(config)], echo)
    return metrics(config["run_dir"])


def plan(config):
    """The output of `epipe plan --json` for these flags, as a dictionary: `flags` for `epipe.train`, `predicted`, `binds`, `runners_up`.

        >>> plan = epipe.plan({"model": "mlp", "workers": ["client:cpu@2GF", "server:host:7000@200GF"],
        ...                    "link": ["up=10M", "down=100M", "delay=20ms"]})
        >>> plan["flags"]["place"]
        [0, 1, 0]
    """
    return json.loads(_run(["plan", "--json", *_flags(_named_flags(config))], echo=False).splitlines()[-1])


def metrics(run_dir):
    """metrics.jsonl of a run as a list of dictionaries, one per line; `.steps` and `.epochs` are flat, for `pandas.DataFrame`.

        >>> [line["step"] for line in epipe.metrics("runs/first") if line["kind"] == "step"]
        [0, 1, 2]
    """
    path = pathlib.Path(_arguments.path("run_dir", run_dir)) / "metrics.jsonl"
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected the metrics of a run; `epipe train --run-dir {run_dir}` writes them")
    lines = Metrics()
    for line in path.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break  # the last line of a run that was killed or is still running
    return lines


def report(run_dir, output=None):
    """Writes one HTML page about a run, or several side by side, and returns its path, which a notebook shows as the page.

        >>> epipe.report("runs/first").name
        'report.html'
    """
    runs = [_arguments.path("run_dir", run) for run in (run_dir if isinstance(run_dir, (list, tuple)) else [run_dir])]
    if not runs:
        raise ValueError("run_dir: expected a run directory or several, got none")
    default = pathlib.Path(runs[0]) / "report.html" if len(runs) == 1 else pathlib.Path("comparison.html")
    path = pathlib.Path(output) if output is not None else default
    _run(["report", *runs, "--output", str(path)], echo=False)
    return Page(path)
