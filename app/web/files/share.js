// Copies a race: its result in words, as a command, its proof, or a link to this page with its settings.

import { isLoopback } from "../base/dom.js";
import { optionWords, settingsOptions, write } from "../base/text.js";
import { guessing } from "../board/more_lanes.js";
import { racedSettings } from "../board/page.js";
import { copyFrom, refs, root, S, verdictOn } from "../board/screen.js";
import { proofText } from "./proof.js";
import { resultRow, resultWords } from "./result.js";

function commandOf(raced) {
  const { target, ...settings } = settingsOptions(raced), lanes = guessing().length > 1 ? guessing() : [];
  const options = { target, prompt: raced.prompt, ...(lanes.length ? {} : { drafter: raced.drafter, k: raced.k }),
    rule: raced.rule !== "coupled" && raced.rule, ...settings,
    lane: lanes.map(({ name, drafter, k }) => `${name}=${drafter}@${k}`), chat: raced.chat, audit: true };
  return `python -m engine race ${optionWords(options)}`;
}

function linkOf({ target, ...settings }) {
  return `${location.origin}${location.pathname}#${new URLSearchParams(settings)}`;
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
