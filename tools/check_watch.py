#!/usr/bin/env python3
"""Checks `epipe watch` in headless Chromium: charts move during a run; switches, keyboard focus and open sections survive updates; a paused
page does not move; 10,000 steps stay smooth; every control works by keys alone; a screen reader finds names and roles; texts have contrast
in dark and in light; and the console is empty.

    check_watch.py build/epipe [FOLDER]    FOLDER keeps screenshots

Without chromium the exit code is 77."""
import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import devtools

STEPS = 10_000
SLOWEST_FRAME_MS = 250  # for a headless browser without a GPU, on two shared cores
LOSS = "document.querySelector('#chart-train-loss path.line')?.getAttribute('d')"
STEPS_SHOWN = "Number([...document.querySelectorAll('#overview dt')].find(dt => dt.textContent === 'steps').nextSibling.textContent)"
FRAMES = """new Promise(done => {
  const times = [];
  const tick = now => { times.push(now); times.length < 2 || now - times[0] < 6000 ? requestAnimationFrame(tick) : done(times); };
  requestAnimationFrame(tick);
})"""

# Texts that are harder to read than WCAG 2 allows (AA: 4.5 to 1), and how many were looked at.
FAINT = """(() => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => numbers(color).slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor, parts = numbers(color);
      if (parts.length < 4 || parts[3] > 0) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const faint = [];
  let looked = 0;
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    const box = element.getBoundingClientRect();
    if (!own || box.width === 0 || element.closest('script, style, #tip, [aria-pressed="false"].key, rect, [class*="span"]')) continue;
    if (element.closest('svg') && element.parentElement.querySelector('rect')) continue;  // on a bar of its own colour
    const style = getComputedStyle(element), color = element.closest('svg') ? style.fill : style.color;
    const [a, b] = [light(color), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    looked += 1;
    if (contrast < 4.5) faint.push(`${element.tagName} "${element.textContent.slice(0, 20)}" ${contrast.toFixed(1)}`);
  }
  return [looked, faint];
})()"""


def press(browser, key, code, **more):
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key if len(key) > 1 else "Space", windowsVirtualKeyCode=code,
                     **(more if kind == "keyDown" else {}))


def check_keyboard(browser):
    """Tab goes to every control, Space uses it."""
    browser.call("Page.bringToFront")
    browser.value("document.activeElement.blur(); 0")
    controls = browser.value("document.querySelectorAll('button, summary').length")
    reached = set()
    for _ in range(controls + 5):
        press(browser, "Tab", 9)
        reached.add(browser.value("[...document.querySelectorAll('button, summary')].indexOf(document.activeElement)"))
        if browser.value("document.activeElement.id") == "pause":
            outline = browser.value("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", "the keyboard's place is not to be seen"
            for state in ("true", "false"):
                press(browser, " ", 32, text=" ")
                assert browser.value("document.getElementById('pause').getAttribute('aria-pressed')") == state, "Space does not press Pause"
    assert len(reached - {-1}) == controls, f"Tab reached {len(reached - {-1})} of {controls} controls"


def check_screen_reader(browser):
    """What the browser tells one: names of pictures and controls, headings, tables, and a state that is read out."""
    nodes = [node for node in browser.call("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored")]
    by_role = {}
    for node in nodes:
        by_role.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    pictures = by_role.get("image", []) + by_role.get("img", [])
    assert pictures and all(pictures), f"a picture without a name: {pictures}"
    assert all(by_role["button"]), "a button without a name"
    assert len(by_role["heading"]) > 5 and all(by_role["heading"]), by_role["heading"]
    assert by_role.get("status"), "no state that is read out"
    language = browser.value("document.documentElement.lang")
    assert language == "en" and browser.value("document.title"), "language or title is missing"


def check_contrast(browser, name):
    looked, faint = browser.value(FAINT)
    assert looked > 50, f"only {looked} texts were looked at"
    assert not faint, f"{name}: hard to read: {faint}"


def start_watch(program, *runs):
    process = subprocess.Popen([program, "watch", "--listen", "127.0.0.1:0", *map(str, runs)], stdout=subprocess.PIPE, text=True)
    return process, re.search(r"http://\S+", process.stdout.readline())[0]


def line_of(step):
    cuts = [{"cut": c, "direction": d, "codec": "dct:1", "wire_bytes": 1000 + step % 50, "values": 8000, "bits_per_value": 1.0,
             "rel_error": 1e-3 + 1e-6 * (step % 100)} for c in (0, 1) for d in ("forward", "backward")]
    workers = [{"worker": w, "forward": 0.01, "backward": 0.02, "wait": 0.005, "peak_memory_bytes": 10**8} for w in (0, 1)]
    return json.dumps({"kind": "step", "epoch": step // 1000, "step": step, "loss": 2 / (1 + step / 500) + 0.1 * (step % 7), "accuracy": 0.5,
                       "samples": 64, "seconds": 0.05, "cuts": cuts, "workers": workers}) + "\n"


def screenshot(browser, folder, name):
    if folder:
        picture = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        pathlib.Path(folder, f"{name}.png").write_bytes(base64.b64decode(picture))


def check_moving(program, scratch, folder):
    """A run in progress, side by side with a finished one."""
    run = scratch / "run"
    finished = scratch / "finished"
    flags = ["--place", "0,1,0", "--chunks", "2", "--codec", "dct:1"]
    subprocess.run([program, "train", *flags, "--max-steps", "20", "--run-dir", finished], check=True, capture_output=True)
    training = subprocess.Popen([program, "train", *flags, "--epochs", "100000", "--run-dir", run], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
    while not (run / "metrics.jsonl").exists() or (run / "metrics.jsonl").stat().st_size == 0:
        time.sleep(0.1)
    watch, url = start_watch(program, run)
    both, both_url = start_watch(program, run, finished)
    browser = devtools.Browser()
    try:
        browser.open(url)
        browser.until("document.getElementById('live-state').textContent === 'following'")
        before, steps = browser.value(LOSS), browser.value(STEPS_SHOWN)
        browser.until(f"{LOSS} !== {json.dumps(before)} && {STEPS_SHOWN} > {steps}")
        # A switch that is off, the keyboard focus and an open table survive updates.
        browser.value("const key = document.querySelector('#chart-bits button.key'); key.click(); key.focus();"
                      "document.querySelector('#details details').open = true; 0")
        steps = browser.value(STEPS_SHOWN)
        browser.until(f"{STEPS_SHOWN} > {steps + 2}")
        assert browser.value("document.activeElement.closest('figure')?.id") == "chart-bits", "the focus was lost"
        assert browser.value("document.querySelectorAll('#chart-bits svg .off').length") > 0, "what was hidden came back"
        assert browser.value("document.querySelector('#details details').open"), "what was open closed"
        # Every control is reached by keyboard and has a name, every picture a text.
        assert browser.value("[...document.querySelectorAll('button, summary')].every(b => b.tabIndex >= 0 && b.textContent.trim())")
        assert browser.value("[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-label'))")
        assert browser.value("document.getElementById('live-state').getAttribute('role')") == "status"
        # The tooltip reads the new drawing.
        browser.value("const s = document.querySelector('#chart-train-loss svg'); const at = s.getBoundingClientRect();"
                      "s.dispatchEvent(new PointerEvent('pointermove', {clientX: at.left + at.width / 2, clientY: at.top + 40})); 0")
        assert re.search(r"\d", browser.value("document.getElementById('tip').textContent")), "no tooltip"
        # Paused it stands still, then it catches up.
        browser.value("document.getElementById('pause').click(); 0")
        before = browser.value(LOSS)
        time.sleep(3)
        assert browser.value(LOSS) == before, "it moves while it is paused"
        browser.value("document.getElementById('pause').click(); 0")
        browser.until(f"{LOSS} !== {json.dumps(before)}")
        check_keyboard(browser)
        check_screen_reader(browser)
        check_contrast(browser, "light")
        light = browser.value("getComputedStyle(document.body).backgroundColor")
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        assert browser.value("getComputedStyle(document.body).backgroundColor") != light, "dark looks as light"
        check_contrast(browser, "dark")
        screenshot(browser, folder, "watch-dark")
        browser.open(both_url)
        assert browser.value("document.querySelectorAll('#overview tbody tr').length") == 2
        before = browser.value(LOSS)
        browser.until(f"{LOSS} !== {json.dumps(before)}")
        screenshot(browser, folder, "watch-two")
        both.terminate()
        browser.until("document.getElementById('live-state').textContent.includes('lost')")
        return [text for text in browser.complaints if "ERR_" not in text]  # caused by the stopped server
    finally:
        browser.close()
        for process in (training, watch, both):
            process.terminate()
            process.wait(60)


def check_long(program, scratch, folder):
    """10,000 steps, and more all the time."""
    run = scratch / "long"
    run.mkdir()
    metrics = run / "metrics.jsonl"
    metrics.write_text("".join(map(line_of, range(STEPS))))
    watch, url = start_watch(program, run)
    browser = devtools.Browser()
    writer = subprocess.Popen([sys.executable, "-c", f"""
import sys, time
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import check_watch
for step in range({STEPS}, {STEPS} + 2000):
    with open({str(metrics)!r}, "a") as file: file.write(check_watch.line_of(step))
    time.sleep(0.02)"""])
    try:
        browser.open(url)
        browser.until(f"{STEPS_SHOWN} > {STEPS + 10}")
        steps = browser.value(STEPS_SHOWN)
        times = browser.value(FRAMES)
        assert browser.value(STEPS_SHOWN) > steps, "nothing moved while frames were counted"
        gaps = sorted(b - a for a, b in zip(times, times[1:]))
        print(f"{len(gaps)} frames in {(times[-1] - times[0]) / 1000:.1f} s with {STEPS} steps: median {gaps[len(gaps) // 2]:.1f} ms, "
              f"slowest {gaps[-1]:.0f} ms")
        assert gaps[-1] < SLOWEST_FRAME_MS, f"a frame took {gaps[-1]:.0f} ms, expected less than {SLOWEST_FRAME_MS}"
        screenshot(browser, folder, "watch-long")
        return browser.complaints
    finally:
        writer.terminate()
        writer.wait(30)
        browser.close()
        watch.terminate()
        watch.wait(60)


def main():
    if shutil.which("chromium") is None:
        print("chromium is not installed (Debian: apt-get install chromium): the live page was not looked at")
        return 77
    program = str(pathlib.Path(sys.argv[1]).resolve())
    folder = sys.argv[2] if len(sys.argv) > 2 else None
    if folder:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        complaints = check_moving(program, pathlib.Path(scratch), folder) + check_long(program, pathlib.Path(scratch), folder)
    for text in complaints:
        print(f"on the console: {text}")
    if not complaints:
        print("the live page follows")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
