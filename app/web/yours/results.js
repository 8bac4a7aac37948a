// What "Try it on yours" has found out so far, by kind: a study of prompts, a load of servers, a check-up; and what
// they say of the same servers together. Pure: no DOM.

import { oneLine, plural, times } from "../base/text.js";

// state: idle, asked, or its frames'; frame: the last one; source: its prompts, null for the run's own; servers: their
// addresses, see `namedServers`; is: what it is of, see `subjectOf`
const none = () => ({ state: "idle", frame: null, source: null, servers: {}, is: null });
export const results = { study: none(), load: none(), checkup: none() };
export const KINDS = Object.keys(results);
// current: the kind that runs, ran last, or was opened last
export const latest = { current: "study" };

// What a frame is of: the servers' id, or the target; null if it does not say yet.
export function subjectOf(kind, { servers, report, ran_on: ranOn }) {
  return (kind === "study" && report?.said.on_servers ? ranOn?.machine : servers || report?.target) ?? null;
}
export const isRunning = (kind) => ["asked", "waiting", "racing"].includes(results[kind].state);
export const running = () => KINDS.find(isRunning) ?? null;
const isShown = (kind) => results[kind].frame !== null
  && (kind === latest.current || (results[kind].is !== null && results[kind].is === results[latest.current].is));
export const shownKinds = () => KINDS.filter(isShown);
// What results say of servers; null by default, of other ones and of models on this machine.
export function saidOfServers(questions) {
  return Object.fromEntries(KINDS.map((kind) =>
    [kind, isShown(kind) && !isRunning(kind) ? questions[kind].summary(results[kind]) : null]));
}

// What they say together is made of their summaries.
// study: {verdict, median, interval, num, others, compared, length, temperature}; load: {says, recommends, ratios,
// others, compared, loses, length}; check: {level, check, says, change}, its first fault, else its finding on texts at
// temperature 0, and {numDiffering, numRounding}, of the study's prompts with differing texts that it examined, and of
// texts that differed there by rounding alone. Each is null if there is none of these servers. others: how many texts
// of those compared differ; length: tokens of an answer, at most.

export const isWrong = (check) => check?.level === "fault";

// Whether it says why texts differ.
export const isCause = (check) => isWrong(check) && check.check === "texts";

// Whether the check-up has seen so many texts of a study differ by rounding. It examines no prompts of a load.
export const isRounding = (check, others, temperature) =>
  temperature === 0 && others > 0 && Math.min(check?.numDiffering ?? 0, check?.numRounding ?? 0) >= others;

// One line each for what to do, texts, speed and load; [] with fewer than two results.
export function shortly({ study, load, checkup: check }) {
  if ([study, load, check].filter(Boolean).length < 2) return [];
  const differing = [study, load].find((result) => result?.others) ?? null;
  const isHarmless = !load?.others && isRounding(check, study?.others, study?.temperature);
  return [`To do: ${doLine(study, load, check, differing && !isHarmless)}`,
    `Texts: ${textsLine(differing, [study, load].find((result) => result?.compared), check, isHarmless)}`,
    study && `With one user: ${times(study.median)} while it writes (95 % interval ${
      study.interval.map(times).join(" to ")}, ${plural(study.num, "prompt")}${upToWords(study)}).`,
    load && `Under load${upToWords(load)}, the wait for the first text included: ${load.ratios}.`].filter(Boolean);
}

const upToWords = ({ length }) => (length ? `, up to ${plural(length, "token")}` : "");

function textsLine(differing, any, check, isHarmless) {
  const differ = differing ? `${differing.others} of ${plural(differing.compared, "answer")} differ` : "";
  if (isCause(check)) return `wrong. ${differ ? `${differ}, and the` : "The"} check-up found a fault.`;
  if (isHarmless) return `${differ}, by rounding, as far as the check-up saw.`;
  if (differ) return check ? `${differ}, and the check-up does not say why.` :
    `${differ}, and nobody knows why yet. The check-up finds out.`;
  const same = any?.compared ? `the same in all ${plural(any.compared, "answer")}` : "not compared";
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
