// Step 1: what is tried. A model or servers that the page's owner names go to a route of the page's own, never through
// Gradio, and are kept nowhere in the browser; others get them as a command. The key leaves its field once it is sent.

import { ALLOWED, trigger } from "../host.js";
import { copyOn, nextEvent, post, SILENT, within } from "../base/dom.js";
import { fill, make, oneLine, optionWords, sentence } from "../base/text.js";
import { pageSettings } from "../board/stream.js";
import { choiceOf, dialog, parts } from "./box.js";

export const NEEDS_TWO = "This needs two servers. One alone can be checked up, or put under load.";
const KEPT = "kept in this program's memory", CHOSEN_MS = 10000;
const NOTES = { model: "Reads only config.json; nothing else is downloaded before Start.",
  servers: "OpenAI-compatible: vLLM, SGLang, llama.cpp and others. Two race each other; one alone can be checked "
    + "up or put under load. The key stays in this program's memory until it ends; nothing records it." };
const PAIRS = { model: "your-model", servers: "your-servers" };       // what Settings call them
// number: of the last question to the server; fields: what it was about, as text; answer: to it; used: the fields that
// the page has chosen since; num: how many of those can race; urls: theirs, for copied commands; hasKey: whether one
// was sent.
const naming = { number: 0, fields: "", answer: null, used: "", num: 0, urls: [], hasKey: false };

const text = (name) => parts[name].value.trim();
const FIELDS_OF = {
  model: () => ({ target: text("target"), drafter: text("drafter") }),
  servers: () => ({ url: text("url"), url2: text("url2"), model: text("model"), cacert: text("cacert"), same_device: parts.same.checked,
    chat: { chat: true, plain: false }[parts.as.value] ?? null }),
};
const fieldsOf = (what) => `${what} ${JSON.stringify(FIELDS_OF[what]())}`;

// The URLs as they are sent to, without a password.
const urls = () => ["url", "url2"].map(text).filter(Boolean)
  .map((url) => (url.includes("://") ? url : `http://${url}`).replace(/\/\/[^/]*@/, "//"));

// Whether the boxes name one server, and no second.
export const isOneServer = () => urls().length === 1;

const postTo = (what, asked) => post(`yours/${what}`, JSON.stringify(asked));

function sayNamed(lines, isBad = false) {
  parts.says.replaceChildren(...lines.map((words) => make("span", "", oneLine(words))));
  parts.says.dataset.bad = String(isBad);
}

// What the named model or servers are. Returns the answer; null if something else was typed or asked meanwhile.
async function lookAt(what, use) {
  const number = ++naming.number, fields = fieldsOf(what), key = what === "servers" ? text("key") : "";
  const asked = { ...FIELDS_OF[what](), key, use };
  parts.key.value = "";
  if (key) parts.key.placeholder = KEPT;
  sayNamed(["One moment."]);
  const answer = await postTo(what, asked);
  if (number !== naming.number) return null;
  Object.assign(naming, { fields, answer });
  sayNamed(answer.sentences ?? [sentence(answer.detail)], Boolean(answer.detail) || answer.can_race === 0);
  return answer;
}

// Have the page choose what is named. needsTwo: the question is about two servers. Returns whether it did.
export async function useNamed(what, needsTwo) {
  const fields = fieldsOf(what), isChosen = async () => (await pageSettings()).pair === PAIRS[what];
  if (naming.used !== fields || text("key") || !await isChosen()) {
    const answer = await lookAt(what, true);
    if (!answer || answer.detail || answer.can_race === 0) return false;
    const named = nextEvent("photofinish:named");
    trigger("apply", PAIRS[what]);
    await within(named, CHOSEN_MS);
    if (!await isChosen()) return sayNamed([sentence(SILENT)], true);
    Object.assign(naming, { used: fields, num: answer.can_race ?? 2, urls: what === "servers" ? urls() : [],
      hasKey: parts.key.placeholder === KEPT });
  }
  const isEnough = !needsTwo || naming.num > 1;
  if (!isEnough) sayNamed([NEEDS_TWO], true);
  return isEnough;
}

// Ask again before the next run: the page's server may have been restarted, and know no servers any more.
export function doubtNamed() { naming.used = ""; }

// The servers of a study, for its command: {urls, hasKey}.
export const namedServers = () => ({ urls: naming.urls, hasKey: naming.hasKey });

// A command, on the servers of these lanes: with their URLs if this tab's visitor named them, never with a key.
export function onServers(command, { urls: named = [], hasKey = false }, lanes, options) {
  const address = (i) => (named.length === lanes.length ? named[i] : `URL_${i + 1}`);
  const lane = lanes.map((name, i) => `${name}=openai:${address(i)}`);
  const key = hasKey && lanes.length ? 'OPENAI_API_KEY="$OPENAI_API_KEY" ' : "";
  return `${key}python -m engine ${command} ${optionWords({ lane, ...options })}`;
}

function commandToOpen(what) {
  const given = urls(), lanes = [["baseline", "http://localhost:8000/v1"], ["speculative", "http://localhost:8001/v1"]];
  const model = { target: text("target") || "owner/name", drafter: text("drafter") || "ngram" };
  return `python app.py ${optionWords(what === "model" ? model : {
    lane: lanes.map(([lane, url], i) => `${lane}=openai:${given[i] ?? url}`), model: text("model") || "NAME",
    "same-device": parts.same.checked })}`;
}

export function drawWhat() {
  const what = choiceOf("what"), isNamed = what !== "here";
  const loaded = document.querySelector(".page-model")?.dataset.target;
  fill(parts, { here: loaded ? `as in Settings: ${loaded}` : "as in Settings", modelFields: what === "model",
    serversFields: what === "servers" });
  if (ALLOWED.own) fill(parts, { named: isNamed, checkNote: NOTES[what] ?? "" });
  else fill(parts, { elsewhere: isNamed, command: isNamed ? commandToOpen(what) : "" });
}

for (const node of dialog.querySelectorAll("[data-own]"))
  if ((node.dataset.own === "true") !== ALLOWED.own) node.remove();
parts.whatStep.addEventListener("input", () => {
  naming.number += 1;                    // what is said belongs to what was typed before
  if (ALLOWED.own) sayNamed([]);
});
parts.whatStep.addEventListener("change", async ({ target: { name, value } }) => {
  const isTyped = ["url", "url2"].some((field) => text(field)) || naming.answer;
  if (name === "what" && value === "servers" && ALLOWED.own && !isTyped) {
    const { sentences = [] } = await postTo("servers", { again: true });       // those tried before
    sayNamed(sentences);
  } else if (name === "what" && value !== "here" && naming.fields === fieldsOf(value))
    sayNamed(naming.answer.sentences ?? [naming.answer.detail]);
});
parts.check.addEventListener("click", () => lookAt(choiceOf("what"), false));
if (parts.copyCommand.isConnected) copyOn(parts.copyCommand, () => commandToOpen(choiceOf("what")));
