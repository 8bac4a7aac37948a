// What "Your prompts", "Under load" and the check-up found out about the same servers in this tab, and what they say
// together. Each dialog is a program of its own.

import { plural, times } from "../base/text.js";

const found = globalThis.photofinishFound ??= {};

// servers: their id, in the frames of a result that was not opened from a file; null of models on this machine.
// what, by kind: "study": {verdict, median, interval, num, others, length}; "load": {says, recommends, ratios, num,
// others, loses, length}; "checkup": {level, says}, the finding about texts. others: how many texts of num differ;
// length: tokens of an answer, at most.
export function tell(kind, servers, what) { found[kind] = servers ? { servers, ...what } : null; }

export const knownOf = (kind, servers) => (servers && found[kind]?.servers === servers ? found[kind] : null);

export const isWrong = (check) => check?.level === "fault";

// Whether it is known that differing texts are rounding.
export const isRounding = (check) => check?.level === "ok";

// A line each for what to do, texts, speed and load; [] with fewer than two results.
export function shortly(servers) {
  const [study, load, check] = ["study", "load", "checkup"].map((kind) => knownOf(kind, servers));
  if ([study, load, check].filter(Boolean).length < 2) return [];
  return [`To do: ${doLine(study, load, check)}`, textsLine(study ?? load, load ?? study, check),
    study && `With one user: ${times(study.median)} while it writes (95 % interval ${
      study.interval.map(times).join(" to ")}, ${plural(study.num, "prompt")}, up to ${
        plural(study.length, "token")}).`,
    load && `Under load, up to ${plural(load.length, "token")}, the wait for the first text included: ${
      load.ratios}.`].filter(Boolean);
}

function textsLine(one, other, check) {
  const its = one?.others || !other ? one : other;
  const differ = its?.others ? `${its.others} of ${plural(its.num, "answer")} differ` : "";
  if (isWrong(check)) return `Texts: wrong. ${differ ? `${differ}, and the` : "The"} check-up found a fault.`;
  if (isRounding(check)) return differ ? `Texts: ${differ}, by rounding alone (check-up).` : "Texts: the same.";
  return differ ? `Texts: ${differ}, and nobody knows why yet. The check-up finds out.` : "Texts: the same.";
}

function doLine(study, load, check) {
  const then = load?.recommends;
  if (isWrong(check))
    return `turn speculation off, and report the fault.${then ? ` Once it is fixed: ${then}.` : ""}`;
  if ((study?.others || load?.others) && !isRounding(check)) return "find out why texts differ, with the check-up.";
  return then ? `${then}.` : study?.verdict === "ship" ? "measure it under load." : "more prompts, or leave it off.";
}
