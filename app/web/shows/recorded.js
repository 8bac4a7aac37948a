// The examples' recorded races, fetched in the background so that they can be shown when the server is gone.

import { fetchOurs } from "../base/dom.js";
import { autoplay } from "../board/deck.js";
import { onFrame } from "../board/frames.js";
import { examples, RACING } from "../board/page.js";
import { on, S } from "../board/screen.js";

const LATER_MS = 3000;          // the page's own start comes first
const texts = new Map();        // null: there is none
let fetching = false;

export const nameOf = (button) => button.textContent.trim();
// An example's button has the id page-example-ID, its recorded race on the server the key recorded-ID.
const keyOf = (button) => button.id.replace("page-example", "recorded");

// The recording of an example's race; null if there is none.
export async function recordingOf(button) {
  const text = button && await textOf(keyOf(button)).catch(() => null);
  return text ? JSON.parse(text) : null;
}

async function textOf(key) {
  if (!texts.has(key)) {
    const answer = await fetchOurs(`recordings/${key}.json`);
    if (answer.status < 500) texts.set(key, answer.ok ? await answer.text() : null);         // else it may come later
  }
  return texts.get(key) ?? null;
}

// One after the other, and never while a race is timed.
export async function fetchRecorded() {
  if (fetching) return;
  fetching = true;
  const missing = () => examples().map(keyOf).filter((key) => !texts.has(key));
  for (const key of missing()) if (!S.live || !RACING.includes(S.state)) await textOf(key).catch(() => null);
  fetching = false;
  if (missing().length) setTimeout(fetchRecorded, LATER_MS);
}

// Show the recorded race of an example. Returns whether it is on the screen now.
export async function showRecorded(button) {
  const race = keyOf(button), text = await textOf(race).catch(() => null);
  if (text === null || S.id === race) return text !== null;
  onFrame({ race, name: nameOf(button), seq: 0, state: "finished", ribbon: "RECORDED",
    status: { text: `Recorded on ${JSON.parse(text).device.name}.` }, recording: text, complete: true });
  return true;
}

// A click on an example shows its race, but never in place of one that runs.
document.addEventListener("click", ({ target }) => {
  const button = examples().find((example) => example.contains(target));
  if (!button || (S.live && RACING.includes(S.state))) return;
  if (S.id === keyOf(button)) autoplay(true); else showRecorded(button);
});

let begun = false;
on("painted", () => {
  if (begun || !S.header || !examples().length) return;
  begun = true;
  setTimeout(fetchRecorded, LATER_MS);
});
