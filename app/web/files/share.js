// Copies a race: its result in words, as a command, a link to this page with its settings, or the proof of its verdict:
// what was compared, a hash of each text, made in this browser, and the command that runs the race again.

import { isLoopback, showModal } from "../base/dom.js";
import { isOfServers } from "../base/model.js";
import { make, oneLine, optionWords, plural, put, sentence, settingsOptions, write } from "../base/text.js";
import { guessing } from "../board/more_lanes.js";
import { racedSettings } from "../board/page.js";
import { copyFrom, on, refs, root, S, shownLanes, titles, verdictOn } from "../board/screen.js";
import { fileName, resultRow, resultWords } from "./result.js";

const OF_IDS = "SHA-256 of the token ids: decimal, with commas between them, as in \u201c2,34,1546\u201d. To check it "
  + "on another machine: save the race and run this in a copy of Photofinish.";
const OF_TEXT = "SHA-256 of the text in UTF-8. A race of servers cannot be run again here.";
const NO_HASH = "not computed: browsers do this on https and localhost pages only";

async function hashOf(text) {
  const { subtle } = window.crypto;
  if (!subtle) return NO_HASH;
  const bytes = new Uint8Array(await subtle.digest("SHA-256", new TextEncoder().encode(text)));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function comparedIn(verdict) {
  const { kind, rows_compared: rows, rows_different: different } = verdict;
  if (kind === "not_compared") return verdict.short;
  if (kind === "same_distribution") return "no tokens: under this rule both texts are drawn separately";
  if (isOfServers(S.recording)) return "the texts, character by character";
  return `${plural(rows, "token")}, ${typeof different === "number" ?
    `and a checksum over every bit of ${plural(rows, "row")} of logits: ${different} differ`
    : "no logits (Audit was off)"}`;
}

// {title, facts, how, command} of the lanes on the screen; null without a verdict.
export async function proofOf() {
  const verdict = verdictOn(S.sides[1]);
  if (!verdict) return null;
  const { model, device, runs, commit, created } = S.recording, asText = isOfServers(S.recording);
  const written = shownLanes().map((lane) => (asText ? lane.steps.flatMap((step) => step.pieces).join("") :
    lane.steps.flatMap((step) => step.token_ids).join()));
  const hashes = await Promise.all(written.map(hashOf));
  const facts = [["Compared", comparedIn(verdict)],
    ["Model", `${model.name} in ${model.dtype}${model.digest ? `, weights ${model.digest}` : ""}`],
    ["Computed by", [device.name, runs?.sentence].filter(Boolean).join("; ")],
    ["Recorded", [created, commit && `commit ${commit}`].filter(Boolean).join(", ")],
    ...titles().map((title, i) => [`${title}: hash`, hashes[i]])];
  return { title: sentence(verdict.sentence), facts, how: asText ? OF_TEXT : OF_IDS,
    command: asText ? "" : `python -m engine verify ${fileName("json")}` };
}

export async function proofText() {
  const { title, facts, how, command } = await proofOf();
  return [title, ...facts.map(([name, words]) => `${name}: ${words}`), how, command].filter(Boolean).map(oneLine)
    .join("\n");
}

async function openProof() {
  const proof = await proofOf();
  if (!proof) return;
  put(refs, { proofTitle: oneLine(proof.title), proofHow: proof.how, proofCommand: proof.command,
    proofFacts: proof.facts.flatMap((fact) => ["dt", "dd"].map((tag, i) => make(tag, "", oneLine(fact[i])))) });
  refs.proofCommand.parentNode.hidden = !proof.command;
  showModal(refs.proof);
}

refs.proofOpen.addEventListener("click", openProof);
refs.proofClose.addEventListener("click", () => refs.proof.close());
refs.proofCopy.addEventListener("click", () => copyFrom(refs.proofCopy, proofText()));
refs.proofCopyCommand.addEventListener("click", () => copyFrom(refs.proofCopyCommand, refs.proofCommand.textContent));
on("cleared", () => refs.proof.close());

function commandOf(raced) {
  const { target, ...settings } = settingsOptions(raced), lanes = guessing().length > 1 ? guessing() : [];
  const options = { target, prompt: raced.prompt, ...(lanes.length ? {} : { drafter: raced.drafter, k: raced.k }),
    rule: raced.rule !== "coupled" && raced.rule, ...settings,
    lane: lanes.map(({ name, drafter, k }) => `${name}=${drafter}@${k}`), chat: raced.chat, audit: true };
  return `python -m engine race ${optionWords(options)}`;
}

// Slack makes a + of a link the sign itself.
function linkOf({ target, ...settings }) {
  return `${location.origin}${location.pathname}#${String(new URLSearchParams(settings)).replaceAll("+", "%20")}`;
}

const NETWORK = /^(10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.)|\.local$/;
const LINK_NOTE = `A link contains the prompt and the settings, not the result.${isLoopback() ?
  " It opens on this machine only." : NETWORK.test(location.hostname) ? " It opens in this network only." : ""}`;
document.addEventListener("click", (event) => { if (!refs.share.contains(event.target)) refs.share.open = false; });
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !refs.share.open) return;
  refs.share.open = false;
  refs.share.firstElementChild.focus();
});
const copies = [...root.querySelectorAll("[data-copy]")].filter((button) => !button.hidden);
const NEEDS = { proof: () => verdictOn(S.sides[1]), sentence: resultWords, row: resultRow };
// A table of two rows in Markdown, in which a prompt's own signs mean nothing.
function rowWords() {
  const cells = (i) => `| ${resultRow().map((pair) => pair[i].replace(/[\\`*_~<&[|]/g, "\\$&")).join(" | ")} |`;
  return [cells(0), `|${"---|".repeat(resultRow().length)}`, cells(1)].join("\n");
}

// Offers what this race has: one of servers does not contain their addresses.
refs.share.addEventListener("toggle", () => {
  for (const button of copies) button.hidden = S.raw && !(NEEDS[button.dataset.copy] ?? racedSettings)();
  write(refs.linkNote, S.raw ? LINK_NOTE : "A race must be over first.");
  refs.linkNote.hidden = root.querySelector("[data-copy=link]").hidden;
});
for (const button of copies)
  button.addEventListener("click", () => {
    const textOf = { command: commandOf, link: linkOf, proof: proofText, sentence: resultWords, row: rowWords };
    copyFrom(button, textOf[button.dataset.copy](racedSettings()), "Save the race instead.");
  });
