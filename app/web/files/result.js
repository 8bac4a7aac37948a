// The result of the race, as it is sent: file names, and sentences that lead with what a server can run.

import { cautionsOf, isNoise, NO_EVIDENCE, ratioNoise } from "../base/caveats.js";
import { isOfServers, laneSpec } from "../base/model.js";
import { oneLine, plural, sentence } from "../base/text.js";
import { differs, noResult, verdictWord } from "../base/words.js";
import { S, verdictOn } from "../board/state.js";
import { answerOf, choiceWords, gainWords, noiseWords, scopeOf, verdictWords } from "../tabs/answer.js";
import { answerNow, isBeingMade } from "../tabs/whatif_tab.js";

// {ratio, isEven: within the noise, not: why it is no result, own: the option} of the lane on the right; null without a
// ratio.
function resultNow() {
  if (!S.recording) return null;
  const answer = answerOf(S.recording, S.computed ? S.raced.race : S.race, S.first);
  const own = answer?.options.find(({ lane }) => lane === S.sides[1]);
  const none = noResult(verdictOn(S.sides[1])), { loop } = cautionsOf(S.recording, S.sides[1]);
  return own ? { ratio: own.ratio, isEven: isNoise(own.ratio, ratioNoise(answer.plain.steps, own.steps)),
    not: none ? `no result: ${none}` : loop && NO_EVIDENCE, own } : null;
}

const part = (value) => String(value ?? "").replace(/[^A-Za-z0-9.-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60);

// "photofinish_gemma-3-270m_2.17x_2026-11-27.html". A ratio that says nothing gives way to the prompt's first words.
export function fileName(suffix) {
  const { model, created, prompt, synthetic } = S.recording ?? S.header ?? {}, result = resultNow();
  const says = result && !result.isEven && !cautionsOf(S.recording, S.sides[1]).says && !result.not
    && !differs(verdictOn(S.sides[1]));
  const about = says ? `${result.ratio.toFixed(2)}x` :
    part(prompt?.text?.trim().split(/\s+/, 4).join(" ")).slice(0, 30);
  return ["photofinish", part(model?.name), about, part(created).slice(0, 10), synthetic?.length ? "SYNTHETIC" : ""]
    .filter(Boolean).join("_") + `.${suffix}`;
}

// The answer that leads: what Decide says, unless it is of a choice that no server can run. null as long as the tables
// may bring a better one, or without an answer.
export function leadNow() {
  if (!S.header || S.live || isBeingMade()) return null;
  const answer = answerNow();
  return answer?.isChosen && !answer.subject.canServe ? answerNow(null) : answer;
}

// Its verdict, if a server can run that. what: put before the drafter.
export function leadWords(lead, what) {
  if (lead?.subject.canServe) return verdictWords(lead, isOfServers(S.header) ? "" : what);
  const not = lead ? lead.not : resultNow()?.not;
  return not ? sentence(not) : "";
}

// What raced on the right, if the verdict is not on that.
export function racedWords(lead) {
  const result = resultNow(), lane = laneSpec(S.header, S.sides[1]);
  if (!result || !lane || (lead?.subject.canServe && lead.subject.lane === lane.name)) return "";
  const who = !lead || result.own.canServe ? "This race" : "This engine alone";
  return `${who}: ${lead?.subject.canServe ? "" : "speculative decoding, "}${choiceWords(result.own)}, ${
    gainWords(result.own)}${result.isEven ? ", within the noise" : ""}.`;
}

// "one 195-token prompt, temperature 0.8, 160 tokens written".
export function taskWords() {
  const { prompt, spec } = S.header ?? {}, { temperature } = spec?.params ?? {}, given = prompt?.token_ids?.length;
  const written = S.race.lane(S.sides[1])?.tokens.at(-1);
  const sampled = temperature > 0 ? `temperature ${+temperature.toFixed(2)}` : temperature === 0 && "greedy";
  return [given > 0 ? `one ${given}-token prompt` : "one prompt", sampled,
    written > 0 && `${plural(written, "token")} written`].filter(Boolean).join(", ");
}

// The result in a few sentences, to be pasted into a mail; "" without a ratio.
export function resultWords() {
  const header = S.recording, lead = leadNow(), noise = noiseWords(lead?.noise);
  if (!resultNow()) return "";
  const verdict = verdictWord(verdictOn(S.sides[1])), { whole, copies } = cautionsOf(S.recording, S.sides[1]);
  return oneLine([`${header.synthetic?.length ? "SYNTHETIC: " : ""}${
    leadWords(lead, "speculative decoding that a server can run, ")}`, racedWords(lead),
  whole, copies, verdict && `${verdict}.`,
  `Measured by Photofinish with ${scopeOf(header)}, ${taskWords()}${
    noise && `, noise of the ratio ${noise}`}, ${String(header.created).slice(0, 10)}.`].filter(Boolean).join(" "));
}
