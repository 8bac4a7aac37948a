// How a race differs in its settings from the recording that it replaces: null if it does not; else a short line with
// this race's side of the first difference, and one with both sides of all. Both as headers: {model, spec, prompt}.

import { cut, oneLine, shortDrafter } from "../base/text.js";
import { draftWords } from "../base/words.js";

const speculativeOf = ({ spec }) => spec.lanes.filter(({ role }) => role === "speculative");
const wordsOfLane = (lane) => (lane.drafter === "server" ? `${lane.name}, on a server` : draftWords({ ...lane,
  drafter: shortDrafter(lane.drafter) }));
const exactWidth = ({ spec }) => spec.lanes.find(({ role }) => role === "baseline")?.width ?? "auto";
const SHORT = 30, WHOLE = 176;          // letters; the short line has one line of the board
// In words, what matters most first.
const SETTINGS = [
  ({ model }) => model.name,
  (race) => speculativeOf(race).map(wordsOfLane).join(" and ") || "no guesses",
  ({ spec: { params } }) => (params.temperature > 0 ? `temperature ${+params.temperature.toFixed(3)}` : "temperature 0"),
  ({ spec: { params } }) => (params.temperature > 0 ? `seed ${params.seed}` : ""),
  ({ spec: { params } }) => `top-p ${params.top_p}`,
  ({ spec: { params } }) => `top-k ${params.top_k}`,
  ({ spec: { params } }) => `at most ${params.max_new_tokens} tokens`,
  ({ spec: { params } }) => (params.stop.length ? `stopped at ${JSON.stringify(params.stop)}` : "no stop texts"),
  ({ prompt }) => (prompt.chat ? "as a chat message" : "as plain text"),
  (race) => `rule ${speculativeOf(race)[0]?.rule ?? "coupled"}`,
  (race) => `width ${exactWidth(race)}`,
  ({ spec }) => (spec.audit ? "audited" : "not audited"),
];

export function settingsDifference(race, recording) {
  const pairs = SETTINGS.map((words) => [words(race), words(recording)]).filter(([ours, theirs]) => ours !== theirs);
  if (!pairs.length) return null;
  const brief = (words, most) => (words.length > most ? `${cut(words, most - 1)}\u2026` : words);
  const [ours, theirs] = [0, 1].map((i) => oneLine(pairs.map((both) => both[i]).filter(Boolean).join(", ")));
  return { short: `Unlike the recording: ${brief(oneLine(pairs[0][0]), SHORT)}.`,
    whole: `This race: ${brief(ours, WHOLE)}; the recording: ${brief(theirs, WHOLE)}.` };
}
