#include "epipe/report/style.h"

namespace epipe::report {

const std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --card: #ffffff; --ink: #1b2330; --soft: #5d6778; --grid: #e7e9ee; --rule: #aab2bf; --edge: #dfe2e8; --warn: #fff6dd;
  --c0: #2563eb; --c1: #e06c00; --c2: #0a9367; --c3: #b52bc4; --c4: #0b8aa8; --c5: #a1501c; --c6: #d42a3c; --c7: #64707f;
  --forward: #4f8df5; --backward: #f2a33a; --optimizer: #8a63d8; --encode: #1f9d5b; --decode: #8cc63f; --send: #e0487e;
  --all_reduce: #b52bc4; --data: #8d6e63; --wait: #dde1e7; --other: #9aa3b2;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --card: #1a2029; --ink: #e4e8ee; --soft: #9aa5b5; --grid: #2a323e; --rule: #566172; --edge: #2a323e; --warn: #3a3217;
    --c0: #6ea2ff; --c1: #ff9d47; --c2: #3fcf9b; --c3: #e07bec; --c4: #4cc8e6; --c5: #d39168; --c6: #ff7683; --c7: #a8b3c2;
    --forward: #4f86e0; --backward: #d98f2b; --optimizer: #9b7ae0; --encode: #2fae6b; --decode: #93bf4e; --send: #e25c8b;
    --all_reduce: #c95bd6; --data: #a58578; --wait: #333c49; --other: #75808f;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
header, main { max-width: 1330px; margin: 0 auto; padding: 0 20px; }
header p { margin: 22px 0 0; color: var(--soft); font-size: 13px; }
#live { display: flex; gap: 10px; align-items: center; }
#pause { padding: 2px 10px; border: 1px solid var(--edge); border-radius: 6px; background: var(--card); color: var(--ink); font: inherit; cursor: pointer; }
h1 { margin: 0 0 16px; font-size: 25px; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 0; font-size: 16px; overflow-wrap: anywhere; }
figure, .tiles > div, table, details { background: var(--card); border: 1px solid var(--edge); border-radius: 8px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(135px, 1fr)); gap: 12px; margin: 0 0 16px; }
.tiles > div { padding: 10px 14px; }
dt { color: var(--soft); font-size: 13px; }
dd { margin: 2px 0 0; font-size: 18px; font-weight: 600; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; margin: 0 0 16px; }
table { width: 100%; border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; }
th, td { padding: 8px 14px; text-align: right; border-bottom: 1px solid var(--grid); }
tbody tr:last-child > * { border-bottom: 0; }
thead th { color: var(--soft); font-size: 13px; font-weight: 500; vertical-align: bottom; }
th:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
tbody th { font-weight: 600; overflow-wrap: anywhere; min-width: 120px; }
tbody td { white-space: nowrap; }
td:nth-child(2) { white-space: normal; }
.notes { margin: 0 0 16px; padding: 10px 14px 10px 32px; background: var(--warn); border: 1px solid var(--edge); border-radius: 8px; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; margin: 0 0 16px; }
figure { margin: 0; padding: 14px 16px 10px; break-inside: avoid; }
figure.wide { grid-column: 1 / -1; }
figcaption { margin: 0 0 8px; }
.note { margin: 2px 0 0; color: var(--soft); font-size: 13px; }
.keys { display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 4px 0 0; min-height: 21px; }
.key { display: inline-flex; align-items: center; gap: 6px; padding: 0; border: 0; background: none; color: var(--ink); font: inherit; font-size: 13px; text-align: left; overflow-wrap: anywhere; }
button.key { cursor: pointer; }
button.key:hover { text-decoration: underline; }
button.key[aria-pressed="false"] { opacity: .4; }
i.swatch { flex: none; display: inline-block; width: 12px; height: 12px; border-radius: 3px; background: currentColor; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
th > i.swatch { margin-right: 7px; }
i.stroke { flex: none; width: 20px; border-top: 3px solid currentColor; }
i.dashed { border-top-style: dashed; }
i.plain { color: var(--soft); }
.none { margin: 30px 0 40px; color: var(--soft); text-align: center; }
svg { display: block; width: 100%; height: auto; overflow: visible; font-family: inherit; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }
.a-forward { color: var(--forward); } .a-backward { color: var(--backward); } .a-optimizer { color: var(--optimizer); }
.a-encode { color: var(--encode); } .a-decode { color: var(--decode); } .a-send { color: var(--send); } .a-all_reduce { color: var(--all_reduce); }
.a-data { color: var(--data); } .a-wait { color: var(--wait); } .a-other { color: var(--other); }
.grid { stroke: var(--grid); } .rule { stroke: var(--rule); } .step { stroke: var(--rule); stroke-dasharray: 3 3; }
.tick, .label { fill: var(--soft); font-size: 11.5px; }
.label { font-size: 12px; }
.name { fill: var(--ink); font-size: 12px; }
.inside { fill: #10151c; font-size: 10px; pointer-events: none; }
.mid { text-anchor: middle; } .end { text-anchor: end; }
path.line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
path.thin { stroke-width: 1.4; }
path.dashed { stroke-dasharray: 5 4; stroke-linecap: butt; }
path.faint { stroke-width: 1; opacity: .28; }
.dot { fill: currentColor; }
.dot.dashed { fill: var(--card); stroke: currentColor; stroke-width: 1.5; }
.bar, .span { fill: currentColor; }
.cursor { stroke: var(--rule); visibility: hidden; }
.off { visibility: hidden; }
#tip { position: fixed; z-index: 1; display: none; max-width: 420px; padding: 7px 10px; border: 1px solid var(--edge); border-radius: 6px; background: var(--card); box-shadow: 0 3px 12px rgb(0 0 0 / .18); font-size: 12.5px; font-variant-numeric: tabular-nums; pointer-events: none; }
#tip div { display: flex; align-items: center; gap: 6px; }
#tip b { margin-left: auto; padding-left: 12px; }
details { margin: 0 0 12px; padding: 10px 16px; }
summary { cursor: pointer; overflow-wrap: anywhere; }
pre { overflow-x: auto; font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
@media (max-width: 900px) { .charts { grid-template-columns: minmax(0, 1fr); } }
@media print {
  body { background: none; font-size: 12px; }
  header, main { max-width: none; padding: 0; }
  figure, .tiles > div, table, details { border-color: #ccc; }
  .charts { gap: 10px; }
}
)css";

const std::string_view kScript = R"js(
'use strict';
const tip = document.getElementById('tip');

// A legend's entry hides the elements of its class: a run's everywhere, all others in its own chart.
function wireKey(key) {
  key.addEventListener('click', () => {
    const name = key.dataset.toggle;
    const shown = key.getAttribute('aria-pressed') !== 'true';
    const scope = name.startsWith('run-') ? document : key.closest('figure');
    for (const mark of scope.querySelectorAll('svg .' + name)) mark.classList.toggle('off', !shown);
    for (const same of scope.querySelectorAll('button.key')) {
      if (same.dataset.toggle === name) same.setAttribute('aria-pressed', String(shown));
    }
  });
}

function axis(text) {
  const [low, high, from, to, kind] = text.split(' ').map((part, i) => i < 4 ? Number(part) : part);
  return pixel => {
    const value = low + (pixel - from) / (to - from) * (high - low);
    if (kind !== 'log') return value;
    return value < low - 1e-3 ? 0 : 10 ** value;
  };
}

function lines(svg) {
  return [...svg.querySelectorAll('path.line')].filter(path => path.dataset.name).map(path => {
    const numbers = path.getAttribute('d').slice(1).trim().split(' ').map(Number);
    const points = [];
    for (let i = 0; i + 1 < numbers.length; i += 2) points.push([numbers[i], numbers[i + 1]]);
    return {path, points};
  });
}

function nearest(points, x) {
  let best = points[0];
  for (const point of points) if (Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
  return best;
}

function show(event, heading, rows) {
  tip.replaceChildren(heading);
  for (const [colour, name, value] of rows) {
    const row = document.createElement('div');
    const mark = document.createElement('i');
    mark.className = 'swatch';
    mark.style.color = colour;
    const number = document.createElement('b');
    number.textContent = value;
    row.append(mark, name, number);
    tip.append(row);
  }
  tip.style.display = 'block';
  const left = event.clientX + 16 + tip.offsetWidth > innerWidth ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16;
  tip.style.left = Math.max(0, left) + 'px';
  tip.style.top = Math.max(0, Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 8)) + 'px';
}

function wireLines(svg) {
  const x = axis(svg.dataset.x);
  const y = axis(svg.dataset.y);
  const cursor = svg.querySelector('.cursor');
  let drawn = null;
  svg.addEventListener('pointermove', event => {
    drawn ??= lines(svg);
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const seen = drawn.filter(line => !line.path.classList.contains('off'));
    if (seen.length === 0) return;
    const middle = seen.map(line => nearest(line.points, at.x)).reduce((a, b) => Math.abs(a[0] - at.x) <= Math.abs(b[0] - at.x) ? a : b)[0];
    const rows = seen.map(line => [line, nearest(line.points, middle)]).filter(row => Math.abs(row[1][0] - middle) < 12)
      .sort((a, b) => a[1][1] - b[1][1]).slice(0, 16)
      .map(([line, point]) => [getComputedStyle(line.path).color, line.path.dataset.name, y(point[1]).toPrecision(3).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '')]);
    cursor.setAttribute('x1', middle);
    cursor.setAttribute('x2', middle);
    cursor.style.visibility = 'visible';
    const unit = svg.closest('figure').id.startsWith('chart-val') ? 'epoch ' : 'step ';
    show(event, unit + Math.round(x(middle)), rows);
  });
  svg.addEventListener('pointerleave', () => {
    cursor.style.visibility = 'hidden';
    tip.style.display = 'none';
  });
}

function wire(root) {
  root.querySelectorAll('button.key').forEach(wireKey);
  root.querySelectorAll('svg.lines').forEach(wireLines);
}
wire(document);
)js";

}  // namespace epipe::report
