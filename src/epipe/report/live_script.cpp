#include "epipe/report/style.h"

namespace epipe::report {

// Parts arrive whole and replace the old ones in the next frame. Legends with unchanged content stay, so that a switch keeps its state and
// the keyboard its focus.
const std::string_view kLiveScript = R"js(
const state = document.getElementById('live-state');
const pause = document.getElementById('pause');
const waiting = new Map();
const captions = new Map();
let drawing = false;

function say(text) {
  if (state.textContent !== text) state.textContent = text;
}

function hideWhatIsSwitchedOff() {
  for (const key of document.querySelectorAll('button.key[aria-pressed="false"]')) {
    const scope = key.dataset.toggle.startsWith('run-') ? document : key.closest('figure');
    for (const mark of scope.querySelectorAll('svg .' + key.dataset.toggle)) mark.classList.add('off');
  }
}

function replaceFigure(old, fresh) {
  if (old.matches(':hover')) tip.style.display = 'none';
  const caption = fresh.querySelector('figcaption').innerHTML;
  const known = captions.get(old.id);
  captions.set(old.id, caption);
  if (known === caption) {
    old.lastElementChild.replaceWith(fresh.lastElementChild);
    old.querySelectorAll('svg.lines').forEach(wireLines);
    return;
  }
  const focused = old.contains(document.activeElement) ? document.activeElement.dataset.toggle : undefined;
  const off = [...old.querySelectorAll('button.key[aria-pressed="false"]')].map(key => key.dataset.toggle);
  old.replaceChildren(...fresh.childNodes);
  wire(old);
  for (const key of old.querySelectorAll('button.key')) {
    if (off.includes(key.dataset.toggle)) key.setAttribute('aria-pressed', 'false');
    if (key.dataset.toggle === focused) key.focus();
  }
}

function replaceDetails(old, fresh) {
  const open = [...old.querySelectorAll('details')].map(one => one.open);
  const focused = [...old.querySelectorAll('summary')].indexOf(document.activeElement);
  old.replaceChildren(...fresh.childNodes);
  old.querySelectorAll('details').forEach((one, i) => { one.open = open[i] === true; });
  if (focused >= 0) old.querySelectorAll('summary')[focused]?.focus();
}

function draw() {
  drawing = false;
  if (pause.getAttribute('aria-pressed') === 'true') return;
  for (const [id, html] of waiting) {
    const old = document.getElementById(id);
    const box = document.createElement('template');
    box.innerHTML = html;
    const fresh = box.content.firstElementChild;
    if (old === null) return location.reload();
    if (old.tagName === 'FIGURE') replaceFigure(old, fresh);
    else if (id === 'details') replaceDetails(old, fresh);
    else old.replaceChildren(...fresh.childNodes);
  }
  waiting.clear();
  hideWhatIsSwitchedOff();
}

function drawSoon() {
  if (!drawing) requestAnimationFrame(draw);
  drawing = true;
}

for (const figure of document.querySelectorAll('figure')) captions.set(figure.id, figure.querySelector('figcaption').innerHTML);
pause.addEventListener('click', () => {
  const paused = pause.getAttribute('aria-pressed') !== 'true';
  pause.setAttribute('aria-pressed', String(paused));
  say(paused ? 'paused' : 'following');
  drawSoon();
});
const source = new EventSource('events');
source.addEventListener('part', event => {
  const part = JSON.parse(event.data);
  waiting.set(part.id, part.html);
  drawSoon();
});
source.addEventListener('open', () => say(pause.getAttribute('aria-pressed') === 'true' ? 'paused' : 'following'));
source.addEventListener('error', () => say('the connection is lost, trying again'));
)js";

}  // namespace epipe::report
