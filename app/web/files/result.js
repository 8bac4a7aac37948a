// The result of the race, as it is sent: file names, and sentences that lead with what a server can run.

import { cautionsOf, isNoise, isOfServers, laneSpec, metricsOf, ratioNoise, whyNoResult } from "../base/model.js";
import { cut, differs, drafterName, oneLine, percent, plural, rate, sentence, startOf, times,
  verdictWord } from "../base/text.js";
import { S, verdictOn } from "../board/screen.js";
import { answerOf, choiceWords, gainWords, noiseWords, payWords, scopeOf, verdictWords } from "../tabs/answer.js";
import { answerNow, isBeingMade } from "../tabs/whatif_tab.js";

const YOURS = "Your prompt";

// {ratio, isEven: within the noise, not: why it is no result, own: the option, plain: what it is compared with} of the
// lane on the right; null without a ratio.
function resultNow() {
  if (!S.recording) return null;
  const answer = answerOf(S.recording, S.computed ? S.raced : S.race, S.first);
  const own = answer?.options.find(({ lane }) => lane === S.sides[1]);
  const why = whyNoResult(S.recording, S.sides[1], verdictOn(S.sides[1]));
  return own ? { ratio: own.ratio, isEven: isNoise(own.ratio, ratioNoise(answer.plain.steps, own.steps)),
    not: why && `no result: ${why}`, own, plain: answer.plain } : null;
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

// What raced: the example's name, or the beginning of one's own prompt.
export function raceTitle() {
  const start = startOf(S.header?.prompt?.text);
  return cut(oneLine(S.name === YOURS ? `${YOURS}: ${start}` : S.name || start), 100);
}

// The result in two sentences, to be pasted into a mail: what was measured, and what a server can run, with what is to
// be known before quoting it between them; "" without a ratio.
export function resultWords() {
  const result = resultNow(), header = S.recording, lead = leadNow(), noise = noiseWords(lead?.noise);
  if (!result) return "";
  const { own, isEven, not } = result, { whole, copies } = cautionsOf(header, S.sides[1]);
  const measured = [gainWords(own) + (isEven ? ", within the noise" : ""), `on ${raceTitle()}`,
    `with ${choiceWords(own)}${own.canServe ? "" : " (this engine alone)"}`].join(" ");
  const where = [`Photofinish, ${scopeOf(header)}`, taskWords(), noise && `noise of the ratio ${noise}`,
    String(header.created).slice(0, 10)].filter(Boolean).join(", ");
  const verdict = verdictWord(verdictOn(S.sides[1])), isOwn = lead?.subject.lane === S.sides[1];
  return oneLine([header.synthetic?.length ? "SYNTHETIC:" : "", not && sentence(not),
    `${[measured, verdict && verdict.toLowerCase()].filter(Boolean).join("; ")} (${where}).`, whole, copies,
    !lead?.subject.canServe || not ? "" : isOwn ? payWords(lead) : leadWords(lead, "a server can run ")]
    .filter(Boolean).join(" "));
}

// The result as a row: [[column, cell], ...]; null without a ratio.
export function resultRow() {
  const result = resultNow(), { model, device, created, commit } = S.recording ?? {};
  if (!result) return null;
  const { own, plain, ratio, not } = result, lane = S.race.lane(S.sides[1]), numbers = metricsOf(lane);
  return Object.entries({ prompt: raceTitle(), task: taskWords(), "plain tok/s": rate(plain.tokensPerS),
    "tok/s": rate(own.tokensPerS), ratio: not ? sentence(not) : times(ratio), drafter: drafterName(own.drafter),
    k: String(own.k), kept: percent(numbers.acceptance_rate),
    "tokens a step": numbers.mean_acceptance_length?.toFixed(2) ?? "\u2013",
    outputs: verdictWord(verdictOn(S.sides[1])), caution: cautionsOf(S.recording, S.sides[1]).says,
    model: `${model.name} in ${model.dtype}`, machine: device.name, build: commit ?? "\u2013",
    date: String(created).slice(0, 10) }).map(([column, cell]) => [column, oneLine(cell ?? "")]);
}
