// The prompt box: how much is in it, counted by the server's tokenizer once the model is loaded, and what is wrong with
// it, said before a race is requested; and a hint if it asks something of a model that only continues text.

import { asks, HINT, hintEnd } from "../base/task.js";
import { make, plural, write } from "../base/text.js";
import { RACING } from "./page.js";
import { mark } from "./root.js";
import { S } from "./state.js";

const COUNT_MS = 700;
const box = () => document.querySelector("#page-prompt textarea");
const isReady = () => document.querySelector(".page-model")?.dataset.state === "ready";
const grouped = (count) => count.toLocaleString("en");
const counted = (count, word) => plural(count, word).replace(String(count), grouped(count));
// seen: what the note was written for; problem: {text, words}, shown while the box has that text.
const prompt = { seen: "", problem: null };

function note(words, isWrong = false) {
  const block = document.getElementById("page-prompt");
  const node = block.querySelector(".page-count") ?? block.appendChild(make("p", "page-count"));
  node.setAttribute("role", "status");
  node.toggleAttribute("data-wrong", isWrong);
  node.title = isWrong ? "" : "Without a chat template's own tokens";
  write(node, words);
}

// One line below the box, on a phone without the parts in <span>.
function hint(text, shows) {
  const block = document.getElementById("page-prompt"), shown = block.querySelector(".page-continues");
  mark("continues", shows);
  if (!shows) return shown?.remove();
  const node = shown ?? block.appendChild(make("p", "page-continues"));
  node.setAttribute("role", "status");
  const words = hintEnd(text);
  return node.textContent.endsWith(words) ? undefined :
    node.replaceChildren(...HINT.map((part, i) => (i % 2 ? part : make("span", "", part))), words);
}

async function look() {
  const text = box()?.value, racing = RACING.includes(S.state), now = `${isReady()} ${racing} ${text}`;
  if (text === undefined || document.hidden || now === prompt.seen) return;
  prompt.seen = now;
  if (prompt.problem?.text === text) return note(prompt.problem.words, true);
  if (!racing || !text) note(text ? counted(text.length, "character") : "");
  if (!text || !asks(text)) hint(text, false);
  if (!text || racing || !isReady()) return undefined;
  const answer = await fetch("tokens", { method: "POST", body: JSON.stringify(text) }).catch(() => null);
  const { count = null, chat } = answer?.ok ? await answer.json() : {};
  if (count === null || prompt.seen !== now) return undefined;
  hint(text, chat === false && asks(text));
  return note(counted(count, "token"));
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
