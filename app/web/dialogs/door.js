// Shared by "Your model" and "Your servers": a form for the page's owner; others get it as a command.
// What is typed goes to a route of the page's own, never through Gradio, and is kept nowhere in the browser.

import { OWN, trigger } from "../host.js";
import { copy } from "../base/dom.js";
import { oneLine } from "../base/text.js";
import { dialog, openedBy, refs } from "./box.js";

const LOST = "The page's server is not responding.";

// Send what was typed. Returns the answer, with `detail` if it was refused, or null if something else was sent since.
let last = 0;
export async function send(route, asked) {
  const number = ++last, before = [[...refs.says.childNodes], refs.use.disabled];
  refs.says.textContent = "One moment.";
  refs.use.disabled = true;
  let answer = { detail: LOST };
  try {
    const answered = await fetch(`yours/${route}`, { method: "POST", body: JSON.stringify(asked) });
    answer = await answered.json();
  } catch { /* LOST */ }
  if (number !== last) return null;
  if (!answer.sentences && !answer.detail) {        // they were only chosen: what was said of them still holds
    refs.says.replaceChildren(...before[0]);
    refs.use.disabled = before[1];
    return answer;
  }
  refs.says.replaceChildren(...(answer.sentences ?? [answer.detail]).map((words) => {
    const line = document.createElement("span");
    line.textContent = oneLine(words);
    return line;
  }));
  refs.says.dataset.bad = String(Boolean(answer.detail) || answer.can_race === 0);
  return answer;
}

// Have the page choose what was sent, by the event of a dialog.
export function choose(event) {
  trigger(event, {});
  dialog.close();
}

// does: {check, use, command, opens}, opens if it does something when it opens; button: what opens the dialog.
export function connect({ check, use, command, opens }, button) {
  openedBy(button, opens);
  for (const node of dialog.querySelectorAll("[data-own]")) if ((node.dataset.own === "true") !== OWN) node.remove();
  const written = () => {
    last += 1;                    // what is said belongs to what was typed before
    refs.says.replaceChildren();
    refs.command.textContent = command();
    refs.use.disabled = true;
  };
  refs.form.addEventListener("input", written);
  refs.form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (OWN) check();
  });
  refs.use.addEventListener("click", use);
  refs.copy.addEventListener("click", async () => {
    if (!await copy(refs.copy, command())) refs.copy.textContent = "This browser blocks copying";
  });
  written();
}
