// What "Your prompts", "Under load" and the check-up say of the same servers together.

import { outcomes } from "../base/outcomes.js";
import { oneLine, plural, times } from "../base/text.js";

// servers: their id, in the frames of a result that was not opened from a file; null of models on this machine.
// what: the `model`, and by kind: "study": {verdict, median, interval, num, others, length, temperature}; "load":
// {says, recommends, ratios, num, others, loses, length}; "checkup": {level, check, says, change}, its first fault, else
// its finding on texts at temperature 0, and {numDiffering, numRounding}, of the study's prompts with differing texts
// that it examined, and of texts that differed there by rounding alone. others: how many texts of num differ; length:
// tokens of an answer, at most.
export function tell(kind, servers, what) { outcomes[kind] = servers ? { servers, ...what } : null; }

export const knownOf = (kind, servers) => (servers && outcomes[kind]?.servers === servers ? outcomes[kind] : null);

export const isWrong = (check) => check?.level === "fault";

// Whether it says why texts differ.
export const isCause = (check) => isWrong(check) && check.check === "texts";

// Whether the check-up has seen so many texts of a study differ by rounding. It examines no prompts of a load.
export const isRounding = (check, others, temperature) =>
  temperature === 0 && others > 0 && Math.min(check?.numDiffering ?? 0, check?.numRounding ?? 0) >= others;

// One line each for what to do, texts, speed and load; [] with fewer than two results.
export function shortly(servers) {
  const [study, load, check] = ["study", "load", "checkup"].map((kind) => knownOf(kind, servers));
  if ([study, load, check].filter(Boolean).length < 2) return [];
  const differing = [study, load].find((result) => result?.others) ?? null;
  const isHarmless = !load?.others && isRounding(check, study?.others, study?.temperature);
  return [`To do: ${doLine(study, load, check, differing && !isHarmless)}`,
    `Texts: ${textsLine(differing, study ?? load, check, isHarmless)}`,
    study && `With one user: ${times(study.median)} while it writes (95 % interval ${
      study.interval.map(times).join(" to ")}, ${plural(study.num, "prompt")}, up to ${
      plural(study.length, "token")}).`,
    load && `Under load, up to ${plural(load.length, "token")}, the wait for the first text included: ${
      load.ratios}.`].filter(Boolean);
}

function textsLine(differing, any, check, isHarmless) {
  const differ = differing ? `${differing.others} of ${plural(differing.num, "answer")} differ` : "";
  if (isCause(check)) return `wrong. ${differ ? `${differ}, and the` : "The"} check-up found a fault.`;
  if (isHarmless) return `${differ}, by rounding, as far as the check-up saw.`;
  if (differ) return check ? `${differ}, and the check-up does not say why.` :
    `${differ}, and nobody knows why yet. The check-up finds out.`;
  const same = any?.num ? `the same in all ${plural(any.num, "answer")}` : "not compared";
  return check?.level === "doubt" ? `${same}; the check-up has a doubt about them.` : `${same}.`;
}

function doLine(study, load, check, isUnsure) {
  const then = load?.recommends;
  if (isWrong(check)) {
    const change = check.change.charAt(0).toLowerCase() + check.change.slice(1);
    return `${oneLine(change)}.${then ? ` Once that is fixed: ${then}.` : ""}`;
  }
  if (isUnsure) return check ? "read the check-up's finding on texts before you switch speculation on." :
    "find out why texts differ, with the check-up.";
  return then ? `${then}.` : study?.verdict === "ship" ? "measure it under load." : "more prompts, or leave it off.";
}
