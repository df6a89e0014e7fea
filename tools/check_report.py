#!/usr/bin/env python3
"""Checks a report as rendered by a browser; see tools/check_report.sh.

  probe PAGE COPY   copies the page, with a script at its end that uses it and records what is visible
  look DOM RUNS     fails unless every chart of RUNS runs was drawn
"""
import html.parser
import pathlib
import sys

CHARTS = {  # the element each chart is drawn with, and the least number of these per run
    "chart-train-loss": ("path", 2), "chart-val-loss": ("path", 2), "chart-train-accuracy": ("path", 2), "chart-val-accuracy": ("path", 2),
    "chart-bytes": ("rect", 4), "chart-time": ("rect", 12), "chart-error": ("path", 4), "chart-bits": ("path", 4)}
TIMELINE_SPANS = 100

PROBE = """<script>
'use strict';
for (const svg of document.querySelectorAll('figure > svg')) {
  const box = svg.getBBox();
  svg.dataset.width = Math.round(box.width);
  svg.dataset.height = Math.round(box.height);
  const seen = [...svg.querySelectorAll('path, rect')].filter(mark => {
    const style = getComputedStyle(mark);
    const paint = mark.tagName === 'path' ? style.stroke : style.fill;
    return style.visibility === 'visible' && paint !== 'none' && (mark.getBBox().width > 0 || mark.getBBox().height > 0);
  });
  svg.dataset.path = seen.filter(mark => mark.tagName === 'path').length;
  svg.dataset.rect = seen.filter(mark => mark.tagName === 'rect').length;
  if (!svg.classList.contains('lines')) continue;
  const at = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove', {clientX: at.left + at.width / 2, clientY: at.top + at.height / 2}));
  svg.dataset.tip = document.getElementById('tip').textContent;
  svg.dispatchEvent(new PointerEvent('pointerleave'));
}
const key = document.querySelector('button.key');
key.click();
document.body.dataset.hidden = document.querySelectorAll('svg .off').length;
key.click();
document.body.dataset.shown = document.querySelectorAll('svg .off').length;
</script>
"""


class Reader(html.parser.HTMLParser):
    """The attributes of the body, and of the picture in each figure."""

    def __init__(self):
        super().__init__()
        self.body, self.pictures, self.figure, self.scripts = {}, {}, None, 0

    def handle_starttag(self, tag, attributes):
        if tag == "body":
            self.body = dict(attributes)
        if tag == "script":
            self.scripts += 1
        if tag == "figure":
            self.figure = dict(attributes)["id"]
        if tag == "svg" and self.figure:
            self.pictures[self.figure] = dict(attributes)

    def handle_endtag(self, tag):
        if tag == "figure":
            self.figure = None


def problems(reader, runs):
    wanted = {chart: (mark, least * runs) for chart, (mark, least) in CHARTS.items()}
    wanted |= {f"chart-timeline-{r}": ("rect", TIMELINE_SPANS) for r in range(runs)}
    for chart, (mark, least) in wanted.items():
        picture = reader.pictures.get(chart)
        if picture is None:
            yield f"{chart}: no picture"
            continue
        drawn = int(picture.get(f"data-{mark}", 0))
        if drawn < least:
            yield f"{chart}: expected at least {least} visible {mark} elements, got {drawn}"
        if int(picture.get("data-width", 0)) < 300 or int(picture.get("data-height", 0)) < 50:
            yield f"{chart}: its picture is empty"
        if picture.get("class") == "lines" and not any(c.isdigit() for c in picture.get("data-tip", "")):
            yield f"{chart}: no tooltip"
    if int(reader.body.get("data-hidden", 0)) == 0 or reader.body.get("data-shown") != "0":
        yield "a legend's switch does not hide and show"
    if reader.scripts != 2:
        yield f"expected the page's script and the probe's, got {reader.scripts} scripts"


def main():
    action, source, argument = sys.argv[1:]
    text = pathlib.Path(source).read_text()
    if action == "probe":
        pathlib.Path(argument).write_text(text.replace("</body>", PROBE + "</body>"))
        return 0
    reader = Reader()
    reader.feed(text)
    found = list(problems(reader, int(argument)))
    for problem in found:
        print(f"{source}: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
