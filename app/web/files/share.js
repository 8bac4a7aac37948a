// Copies a race: its result in words, as a command, as Python, as JSON, its proof, or a link to this page with its
// settings.

import { copy } from "../base/dom.js";
import { DEFAULT_TARGET, optionWords, settingsOptions, shellQuoted, write } from "../base/text.js";
import { guessing } from "../board/more_lanes.js";
import { racedSettings } from "../board/page.js";
import { root } from "../board/root.js";
import { board, refs } from "../board/screen.js";
import { S, verdictOn } from "../board/state.js";
import { proofText } from "./proof.js";
import { resultRow, resultWords } from "./result.js";

function commandOf(raced) {
  const { target, ...settings } = settingsOptions(raced), lanes = guessing().length > 1 ? guessing() : [];
  const options = { target, prompt: raced.prompt, ...(lanes.length ? {} : { drafter: raced.drafter, k: raced.k }),
    rule: raced.rule === "coupled" ? null : raced.rule, ...settings };
  return [`python -m engine race ${optionWords(options)}`,
    ...lanes.map((lane) => `--lane ${shellQuoted(`${lane.name}=${lane.drafter}@${lane.k}`)}`),
    ...(raced.chat ? ["--chat"] : []), "--audit"].join(" ");
}

function pythonOf(raced) {
  const value = JSON.stringify, rule = raced.rule === "coupled" ? "" : `, rule=${value(raced.rule)}`;
  const target = raced.target === DEFAULT_TARGET ? "" : value(raced.target);
  const several = guessing().length > 1, lane = (spec) =>
    `    LaneSpec(${value(spec.name)}, ${value(spec.drafter)}, ${value(spec.k)}${rule}),\n`;
  const lanes = several ? `(\n    LaneSpec("plain", width="fastest"),\n    LaneSpec("baseline"),\n${guessing().map(lane)
    .join("")})` : `standard_lanes(${value(raced.drafter)}, k=${value(raced.k)}${rule})`;
  const names = ["LaneSpec", "RaceSpec", "SamplingParams", "TorchRace", "encode_prompt", "load", "race_speedup",
    "standard_lanes"].filter((name) => name !== (several ? "standard_lanes" : "LaneSpec"));
  return `from engine import ${names.join(", ")}

loaded = load(${target})
prompt = encode_prompt(loaded.tokenizer, ${value(raced.prompt)}, chat=${raced.chat ? "True" : "False"})
params = SamplingParams(temperature=${raced.temperature}, top_p=${raced.top_p}, seed=${raced.seed}, `
    + `max_new_tokens=${raced.max_new_tokens})
lanes = ${lanes}
race = TorchRace(loaded, RaceSpec(lanes, params, audit=True), prompt)
events = list(race.events())
lane = ${value(S.sides[1])}
print(f"{race_speedup(events, lane):.2f}x; {race.result()['verdicts'][lane]['sentence']}")
`;
}

function linkOf({ target, ...settings }) {
  return `${location.origin}${location.pathname}?${new URLSearchParams(settings)}`;
}

const WHERE = [[/^(localhost|127\.|\[::1\])/, " It opens on this machine only."],
  [/^(10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.)|\.local$/, " It opens in this network only."]];
write(refs.linkNote, `A link contains the prompt and the settings, not the result.${
  WHERE.find(([names]) => names.test(location.hostname))?.[1] ?? ""}`);
document.addEventListener("click", (event) => { if (!refs.share.contains(event.target)) refs.share.open = false; });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") refs.share.open = false; });
const copies = [...root.querySelectorAll("[data-copy]")].filter((button) => !button.hidden);
const NEEDS = { proof: () => verdictOn(S.sides[1]), sentence: resultWords, row: resultRow, json: () => true };
// A table of two rows in Markdown.
function rowWords() {
  const cells = (i) => `| ${resultRow().map((pair) => pair[i].replaceAll("|", "\\|")).join(" | ")} |`;
  return [cells(0), `|${"---|".repeat(resultRow().length)}`, cells(1)].join("\n");
}

// Offers what this race has: one of servers does not contain their addresses.
refs.share.addEventListener("toggle", () => {
  for (const button of copies) button.hidden = S.raw && !(NEEDS[button.dataset.copy] ?? racedSettings)();
  refs.linkNote.hidden = root.querySelector("[data-copy=link]").hidden;
});
for (const button of copies)
  button.addEventListener("click", async () => {
    const raced = racedSettings();
    const { copy: what } = button.dataset;
    const textOf = { command: commandOf, python: pythonOf, link: linkOf, json: () => S.raw, proof: proofText,
      sentence: resultWords, row: rowWords }[what];
    if (!S.raw) return undefined;
    return await copy(button, await textOf(raced)) ? board.announce("Copied.") :
      board.alert("This browser blocks copying. Save the race instead.");
  });
