// The result of the race as it was run, as what is sent says it: file names and a sentence.

import { isNoise, loopSentence, NO_EVIDENCE, ratioNoise, withCounters } from "../base/caveats.js";
import { isElsewhere, laneSpec } from "../base/model.js";
import { oneLine, sentence, times } from "../base/text.js";
import { guessWords, VERDICTS } from "../base/words.js";
import { S, verdictOn } from "../board/state.js";
import { answerOf, choiceWords, gainWords, scopeOf } from "../tabs/answer.js";
import { loadNow, yearNow } from "../tabs/decide_tab.js";
import { wasteWords } from "../tabs/money.js";
import { answerNow, isBeingMade } from "../tabs/whatif_tab.js";

// {ratio, isEven: within the noise, loops: the text repeats itself} of the lane on the right; null without a ratio.
function resultNow() {
  if (!S.recording || isElsewhere(S.recording, S.sides[1])) return null;
  const answer = answerOf(S.recording, S.computed ? S.raced.race : S.race, S.first);
  const own = answer?.options.find(({ lane }) => lane === S.sides[1]);
  return own ? { ratio: own.ratio, isEven: isNoise(own.ratio, ratioNoise(answer.plain.steps, own.steps)),
    loops: Boolean(loopSentence(withCounters(own.steps))), work: answer.work } : null;
}

const part = (value) => String(value ?? "").replace(/[^A-Za-z0-9.-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60);

// "photofinish_gemma-3-270m_2.2x_2026-11-27.html". A ratio that says nothing gives way to the prompt's first words.
export function fileName(suffix) {
  const { model, created, prompt, synthetic } = S.recording ?? S.header ?? {}, result = resultNow();
  const says = result && !result.isEven && !result.loops;
  const about = says ? `${result.ratio.toFixed(1)}x` :
    part(prompt?.text?.trim().split(/\s+/, 4).join(" ")).slice(0, 30);
  return ["photofinish", part(model?.name), about, part(created).slice(0, 10), synthetic?.length ? "SYNTHETIC" : ""]
    .filter(Boolean).join("_") + `.${suffix}`;
}

// What of it a server could run, if that is not what raced; "" as long as it is not known.
export function deployable() {
  const answer = isBeingMade() ? null : answerNow(), best = answer?.best;
  if (!answer?.isEvidence || best?.lane === S.sides[1]) return "";
  return best ? `A server can run ${choiceWords(best)}: ${gainWords(best)}.` : "No server runs this drafter.";
}

// The result in a few sentences, to be pasted into a mail; "" without a ratio.
export function resultWords() {
  const result = resultNow(), header = S.recording;
  if (!result) return "";
  const { ratio, isEven, loops, work } = result;
  const saved = !isEven && !loops && !S.disturbed && `, ${wasteWords(ratio, work)}`;
  const verdict = VERDICTS[verdictOn(S.sides[1])?.kind]?.[1];
  return oneLine([`${header.synthetic?.length ? "SYNTHETIC: " : ""}Speculative decoding (${
    guessWords(laneSpec(header, S.sides[1]))}): ${isEven ? "no difference in speed" : `${times(ratio)} as fast as `
    + `without${ratio < 1 ? ", so slower" : ""}`}${saved || ""}.`,
  loops && sentence(NO_EVIDENCE), S.disturbed && "The machine was disturbed: do not quote this.",
  verdict && `${verdict}.`, deployable(), saved && loadNow(), yearNow(),
  `Measured by Photofinish with ${scopeOf(header)}, one prompt, ${String(header.created).slice(0, 10)}.`]
    .filter(Boolean).join(" "));
}
