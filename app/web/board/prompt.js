// The prompt box: how much is in it, counted by the server's tokenizer once the model is loaded, and what is wrong with
// it, said before a race is requested. An own text on a model that only continues texts is sampled, and Race begins the
// answer that it asks for: one line says so, with the ways back.

import { cautionsOf, metricsOf } from "../base/model.js";
import { make, makeButton, oneLine, plural, rate, write } from "../base/text.js";
import { post, remember, remembered, TYPED_MS, typeInto } from "../base/dom.js";
import { withoutStart, withStart } from "../base/task.js";
import { isGiven, isLinked, isOwnPrompt, leaveAsIs, link, pageButton, promptBox, RACING, temperature } from "./page.js";
import { isRecorded } from "./place.js";
import { mark, S } from "./screen.js";

const COUNT_MS = 700;
const SAMPLED = 0.8;
const COLD = "photofinish.cold";          // 0 was chosen for own texts in this visit
// The smallest that answers. A step of plain decoding reads its weights once: `bytes`.
const CHAT = { pair: "qwen3-0.6b-ngram", words: "Qwen3-0.6B, 1.5 GB", bytes: 1.19e9 };
// Its choice among the models in Settings: there if the hub answers and it fits.
const chatModel = () => document.querySelector(`input[type=radio][value="${CHAT.pair}"]`);
// How fast it would decode here, by what the race on the screen read in a second; "" if that did not run here, was
// disturbed, or wrote nothing.
function chatPace() {
  const lane = S.race.lane(S.first.plain ?? S.first.baseline), read = S.header?.roofline?.bytes_per_step;
  if (!lane || S.live || S.fromFile || isRecorded(S) || cautionsOf(S.recording, S.sides[1]).whole) return "";
  const pace = metricsOf(lane).tokens_per_s * read / CHAT.bytes;
  return pace > 0 ? `, about ${rate(pace)} tok/s here` : "";
}
// The chosen model, once it is loaded, else ""; for servers' models the count is null.
const target = () => document.querySelector(".page-model")?.dataset.target ?? "";
const grouped = (count) => count.toLocaleString("en");
const several = (count, word) => plural(count, word).replace(String(count), grouped(count));
// seen, text: what the note was written for; problem: {text, words}, shown while the box has that text; before: the
// temperature before an own text was sampled, null: none is; bases: by target, whether it has no chat template
const prompt = { seen: "", text: "", problem: null, before: null, bases: new Map() };
// Until it is loaded, the line about the pair in Settings tells: see `pair_line` in app/page/sentences.py.
const continues = () => temperature() !== null
  && (prompt.bases.get(target()) ?? document.querySelector(".page-hint[data-base]") !== null);

if (isLinked()) leaveAsIs(link.get("prompt"));
const warms = (text) => prompt.before === null && temperature().value === "0" && !remembered(COLD, true)
  && !isGiven(text);

// Sample an own text, and once it is raced, begin its answer. Returns whether anything changed.
function settle(isRaced = false) {
  const slider = temperature(), text = promptBox().value;
  if (!isOwnPrompt() || !continues()) {
    if (isOwnPrompt() && prompt.before !== null && slider.value === String(SAMPLED)) typeInto(slider, prompt.before);
    prompt.before = null;
    return false;
  }
  if (isGiven(text)) return false;
  const isCold = warms(text), whole = isRaced ? withStart(text) : text;
  prompt.before ??= slider.value;
  if (isCold) typeInto(slider, String(SAMPLED));
  if (whole !== text) typeInto(promptBox(), whole);
  return isCold || whole !== text;
}

// What Race makes of the own text in this box, with the ways back; on a phone without the parts in <span>.
export function ownNote(typed) {
  const text = typed.value, before = withoutStart(text), whole = isGiven(text) ? text : withStart(text);
  if (!text || !continues()) return [];
  const button = (words, act) => makeButton("page-warmer", words, () => {
    act();
    typeInto(typed, typed.value);
    look();
  });
  const use = (value) => button(`Use ${value}`, () => {
    remember(COLD, value ? null : "yes", true);
    typeInto(temperature(), String(value));
  });
  const leave = (words) => button(words, () => {
    typed.value = withoutStart(typed.value) ?? typed.value;
    leaveAsIs(typed.value);
  });
  const value = warms(text) ? SAMPLED : Number(temperature().value), span = (words) => make("span", "", words);
  const start = `\u201c${oneLine(whole.slice((before ?? text).trimEnd().length).trim())}\u201d`;
  const parts = value
    ? ["Sampled at ", span("temperature "), String(value), span(": at 0 this model repeats itself"), ". ", use(0)]
    : ["At ", span("temperature "), "0 this model often repeats itself. ", use(SAMPLED)];
  if (before !== null) parts.push(` ${start}`, span(" begins the answer."), " ", leave("Remove"));
  else if (whole !== text)
    parts.push(span(" It continues texts, so Race adds"), ` ${start}`, span("."), " ", leave("Leave out"));
  if ((whole !== text || before !== null) && chatModel())
    parts.push(make("span", "", " Answers questions: ", button(CHAT.words + chatPace(), () => chatModel().click())));
  return parts;
}

function lineAt(name) {
  const block = document.getElementById("page-prompt");
  const node = block.querySelector(`.${name}`) ?? block.appendChild(make("p", name));
  node.setAttribute("role", "status");
  return node;
}

function note(words, isWrong = false) {
  const node = lineAt("page-count");
  node.toggleAttribute("data-wrong", isWrong);
  node.title = isWrong ? "" : "Without a chat template's own tokens";
  write(node, words);
}

async function look() {
  const text = promptBox()?.value, racing = RACING.includes(S.state);
  if (text === undefined || document.hidden) return;
  settle();
  const now = [target(), racing, isOwnPrompt(), continues(), isGiven(text), temperature()?.value, text].join(" ");
  if (now === prompt.seen) return;
  prompt.seen = now;
  Object.assign(promptBox(), { dir: "auto", translate: false });
  const parts = isOwnPrompt() ? ownNote(promptBox()) : [], words = parts.map((part) => part.textContent ?? part).join("");
  mark("continues", words !== "");
  if (lineAt("page-continues").textContent !== words) lineAt("page-continues").replaceChildren(...parts);
  if (prompt.problem?.text === text) return note(prompt.problem.words, true);
  if (!racing || text !== prompt.text) note(text ? several(text.length, "character") : "");
  prompt.text = text;
  const asked = target();
  if (!text || racing || !asked) return;
  const { count = null, chat } = await post("tokens", JSON.stringify({ text, target: asked }));
  if (count === null) return;
  prompt.bases.set(asked, chat === false);          // whatever was typed meanwhile
  if (prompt.seen === now) note(several(count, "token"));
}

function complain(words) {
  Object.assign(prompt, { problem: { text: promptBox().value, words }, seen: "" });
  look();
}

document.addEventListener("click", (event) => {
  if (!event.target.closest?.("#page-race-button") || (promptBox()?.value !== "" && !settle(true))) return;
  event.stopImmediatePropagation();
  if (promptBox().value) return setTimeout(() => pageButton("race")?.click(), TYPED_MS);
  promptBox().focus();
  complain("Type something first.");
}, true);

// The browser cuts what is longer than the box may be.
for (const name of ["paste", "drop"]) document.addEventListener(name, (event) => {
  const into = promptBox(), text = (event.clipboardData ?? event.dataTransfer)?.getData("text").replace(/\r\n?/g, "\n");
  if (event.target !== into || !text) return;
  const whole = into.value.length - (into.selectionEnd - into.selectionStart) + text.length, most = into.maxLength;
  if (most > 0 && whole > most)
    setTimeout(() => complain(`${grouped(most)} of ${grouped(whole)} characters used.`), 0);
});
setInterval(look, COUNT_MS);
