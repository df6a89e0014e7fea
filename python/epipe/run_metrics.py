"""The metrics of a run, as a list that a notebook can show."""

import base64
import html
import io

_PLOTS = (("loss", "loss", "steps"), ("val_metric", "validation", "epochs"), ("wire_bytes", "bytes on the wire per step", "steps"))


def _flat(line):
    """One row of a table: numbers by name; a cut's as cut0_forward_wire_bytes, a worker's as worker1_wait."""
    row = {name: value for name, value in line.items() if not isinstance(value, (list, dict))}
    for cut in line.get("cuts", ()):
        row.update({f"cut{cut['cut']}_{cut['direction']}_{name}": value for name, value in cut.items() if name not in ("cut", "direction")})
    for i, worker in enumerate(line.get("workers", ())):
        row.update({f"worker{i}_{name}": value for name, value in worker.items() if isinstance(value, (int, float))})
    if "cuts" in line:
        row["wire_bytes"] = sum(cut["wire_bytes"] for cut in line["cuts"])
    return row


class Metrics(list):
    """metrics.jsonl as a list of dictionaries, one per line, returned by `epipe.metrics` and `epipe.train`.

        >>> lines = epipe.metrics("runs/first")
        >>> sorted(lines.steps[0])[:2]
        ['accuracy', 'cut0_backward_bits_per_value']

    As the last line of a notebook's cell it is shown as plots if matplotlib is installed, otherwise as a table.
    """

    @property
    def steps(self):
        """One flat dictionary per step, for `pandas.DataFrame`.

            >>> [row["step"] for row in lines.steps]
            [0, 1, 2]
        """
        return [_flat(line) for line in self if line.get("kind") == "step"]

    @property
    def epochs(self):
        """The same for each epoch.

            >>> len(lines.epochs)
            1
        """
        return [_flat(line) for line in self if line.get("kind") == "epoch"]

    def plot(self):
        """Loss, validation and bytes as a matplotlib figure; matplotlib must be installed.

            >>> figure = lines.plot()
            >>> figure.savefig("run.png")
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("plot() needs matplotlib: pip install matplotlib (Debian: python3-matplotlib)") from error
        figure = Figure(figsize=(4 * len(_PLOTS), 3), layout="constrained")
        for axes, (name, title, what) in zip(figure.subplots(1, len(_PLOTS)), _PLOTS):
            rows = [row for row in getattr(self, what) if row.get(name) is not None]
            at = "step" if what == "steps" else "epoch"
            axes.plot([row[at] for row in rows], [row[name] for row in rows], marker="." if at == "epoch" else None)
            axes.set_title(title)
            axes.set_xlabel(at)
        return figure

    def _repr_html_(self):
        try:
            picture = io.BytesIO()
            self.plot().savefig(picture, format="png")
            return f'<img alt="metrics of a run" src="data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}">'
        except ImportError:
            return _table(self.epochs or self.steps[-1:])


def _table(rows):
    names = list(rows[0]) if rows else []
    lines = ["".join(f"<th>{html.escape(str(name))}</th>" for name in names)]
    lines += ["".join(f"<td>{html.escape(str(row.get(name, '')))}</td>" for name in names) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
