// The prompt box: how much is in it, counted by the server's tokenizer once the model is loaded, and what is wrong with
// it, said before a race is requested; and a hint if it asks something of a model that only continues text, or is one's
// own and races at temperature 0.

import { makeButton, typeInto } from "../base/dom.js";
import { answerStart, asks, HINT } from "../base/task.js";
import { make, plural, write } from "../base/text.js";
import { PROSE, RACING, temperature } from "./page.js";
import { mark } from "./root.js";
import { S } from "./state.js";

const COUNT_MS = 700;
const box = () => document.querySelector("#page-prompt textarea");
// The chosen model, once it is loaded, else ""; for servers' models the count is null.
const target = () => document.querySelector(".page-model")?.dataset.target ?? "";
const grouped = (count) => count.toLocaleString("en");
const several = (count, word) => plural(count, word).replace(String(count), grouped(count));
// seen: what the note was written for; problem: {text, words}, shown while the box has that text.
const prompt = { seen: "", problem: null };

// How the chosen model reads a text: {count, chat}; {} if nobody knows.
export async function counted(text) {
  const body = JSON.stringify({ text, target: target() });
  const answer = await fetch("tokens", { method: "POST", body }).catch(() => null);
  return answer?.ok ? answer.json() : {};
}

function note(words, isWrong = false) {
  const block = document.getElementById("page-prompt");
  const node = block.querySelector(".page-count") ?? block.appendChild(make("p", "page-count"));
  node.setAttribute("role", "status");
  node.toggleAttribute("data-wrong", isWrong);
  node.title = isWrong ? "" : "Without a chat template's own tokens";
  write(node, words);
}

// One line below the box, on a phone without the parts in <span>; null: none.
function hint(parts) {
  const block = document.getElementById("page-prompt"), shown = block.querySelector(".page-continues");
  mark("continues", Boolean(parts));
  if (!parts) return shown?.remove();
  const node = shown ?? block.appendChild(make("p", "page-continues"));
  node.setAttribute("role", "status");
  const words = parts.map((part) => part.textContent ?? part).join("");
  return node.textContent === words ? undefined : node.replaceChildren(...parts);
}

function taskHint(text) {
  const start = answerStart(text);
  const add = makeButton("page-warmer", `Add \u201c${start}\u201d`, () => {
    typeInto(box(), `${box().value.trimEnd()}\n\n${start}`);
    box().focus();
  });
  return [...HINT.map((part, i) => (i % 2 ? part : make("span", "", part))), ". ", add];
}

function coldHint() {
  const use = makeButton("page-warmer", `Use ${PROSE}`, () => typeInto(temperature(), String(PROSE)));
  return [make("span", "", "At temperature 0 "), "prose repeats itself. ", use];
}

async function look() {
  const text = box()?.value, racing = RACING.includes(S.state);
  const isCold = temperature()?.value === "0" && document.querySelector("#page-presets.page-own") !== null;
  const now = `${target()} ${racing} ${isCold} ${text}`;
  if (text === undefined || document.hidden || now === prompt.seen) return;
  prompt.seen = now;
  Object.assign(box(), { dir: "auto", translate: false });
  if (prompt.problem?.text === text) return note(prompt.problem.words, true);
  if (!racing || !text) note(text ? several(text.length, "character") : "");
  if (!text || !(asks(text) || isCold)) hint(null);
  if (!text || racing || !target()) return undefined;
  const { count = null, chat } = await counted(text);
  if (count === null || prompt.seen !== now) return undefined;
  hint(chat !== false ? null : asks(text) ? taskHint(text) : isCold ? coldHint() : null);
  return note(several(count, "token"));
}

function complain(words) {
  prompt.problem = { text: box().value, words };
  prompt.seen = "";
  look();
}

document.addEventListener("click", (event) => {
  if (!event.target.closest?.("#page-race-button") || box()?.value !== "") return;
  event.stopImmediatePropagation();
  box().focus();
  complain("Type something first.");
}, true);

// The browser cuts what is longer than the box may be.
for (const name of ["paste", "drop"]) document.addEventListener(name, (event) => {
  const into = box(), text = (event.clipboardData ?? event.dataTransfer)?.getData("text").replace(/\r\n?/g, "\n");
  if (event.target !== into || !text) return;
  const whole = into.value.length - (into.selectionEnd - into.selectionStart) + text.length, most = into.maxLength;
  if (most > 0 && whole > most)
    setTimeout(() => complain(`${grouped(most)} of ${grouped(whole)} characters used.`), 0);
});
setInterval(look, COUNT_MS);
