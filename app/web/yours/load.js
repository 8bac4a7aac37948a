// The question "under load?", of many users at once.

import { MAX_NEW_TOKENS, MAX_REQUESTS, MAX_WORDS, SAYS, WARM_UP } from "../host.js";
import { cut, filled, numberIn, oneLine, plural, serversWords, times, withTimes } from "../base/text.js";
import { choiceOf, parts } from "./box.js";
import { curve, CURVES, legend, levelRows, levelsHead, METRICS } from "./curves.js";
import { promptsOption, promptSource } from "./own_prompts.js";
import { isCause, isRunning, isWrong, results } from "./results.js";
import { onServers } from "./what.js";

const loaded = results.load;
let started = null;             // the settings of the study that is shown

// Without prompts of the visitor's own they are random words: a server would have the page's one in its cache.
const ownSource = () => (choiceOf("prompts") === "own" ? promptSource() : null);
const settingsNow = () => ({ users: parts.users.value, requests: parts.requests.value, length: parts.loadLength.value,
  dollars: String(numberIn(parts.dollars.value) || parts.dollars.value), words: parts.words.value });

// Whether there are prompts enough; the result says the same (REPEATS in engine/studies/load/study.py).
function needs() {
  const { entries = null } = ownSource() ?? {}, levels = parts.users.value.split(",").filter((level) => level.trim());
  const num = levels.length * Number(parts.requests.value) + WARM_UP;
  const has = entries && new Set([...entries.values()].map((value) => JSON.stringify(value))).size;
  return { need: !entries || has >= num ? "" : `${num} requests to each server, ${WARM_UP} of them to `
    + `warm up, and ${plural(has, "different prompt")} in this file: they will be repeated. A server that caches `
    + "prompts answers a repeated one faster, whichever lane it is." };
}

const loadAsked = ({ asked, temperature, max_new_tokens: length }) => asked ?? { temperature, max_new_tokens: length };

// `1.86x with 1 user, 0.62x with 16`.
const ratiosOf = ({ speedup_by_users: gains }) => Object.entries(gains).map(([num, gain], i) =>
  `${times(gain)} with ${i ? num : plural(Number(num), "user")}`).join(", ");

const textsDiffer = ({ levels }) => levels.some((row) => row.num_same_text < row.num_compared);

function colourOfLoad({ checkup: check }) {
  const { gains_with: gains, gains_little_with: little, loses_with: losses, rough, levels } = loaded.frame.report;
  if (isRunning("load")) return "";
  if (isWrong(check)) return "do not ship";
  if (rough || textsDiffer({ levels }) || little.length || (gains.length && losses.length)) return "unclear";
  return gains.length ? "ship" : losses.length ? "do not ship" : "";
}

export const load = {
  about: "Many users at once; you pay for their tokens. The servers take turns at each level, with the same prompts in "
    + "the same order. Temperature, seed and chat template come from Settings. This server stores nothing.",
  sourceNow: ownSource, needsTwo: false, needs,
  isOwn: () => started !== null && !isRunning("load"),
  isThere: () => Boolean(loaded.frame?.report),
  colour: colourOfLoad,
  answer: ["scope", "verdict", "rough", "details", "notes", "circumstances"],
  asked: () => loadAsked(loaded.frame),
  nameOf: ({ said }) => [said.model, said.created],
    order() {
    const { users, requests, length, dollars, words } = started = settingsNow(), source = ownSource();
    return { users, requests: Number(requests), max_new_tokens: Number(length), words: Number(words),
      dollars: dollars === "" ? null : Number.isNaN(+dollars) ? dollars : +dollars,
      name: source?.name ?? null, text: source?.text ?? null };
  },
  summary({ frame, state }) {
    const { report, lanes } = frame, words = withTimes(report?.says[0] ?? "").split(": ")[0];
    const sum = (name) => report.levels.reduce((all, row) => all + (row[name] ?? 0), 0);
    return !report || state !== "finished" || lanes.length !== 2 ? null : { compared: sum("num_compared"),
      others: sum("num_compared") - sum("num_same_text"), recommends: withTimes(report.recommends),
      length: loadAsked(frame).max_new_tokens ?? null, says: words.charAt(0).toLowerCase() + words.slice(1),
      ratios: ratiosOf(report), loses: report.loses_with.length > 0 };
  },
  values({ checkup: check }) {
    const { model, lanes, report } = loaded.frame, [verdict, ...details] = report.says.map(withTimes);
    const metrics = Object.keys(METRICS).filter((name) => report.levels.some((row) => typeof row[name] === "number"));
    const users = report.levels.map((row) => row.concurrency), few = Math.min(...users), many = Math.max(...users);
    const why = [report.differ, !isCause(check) && report.causes, textsDiffer(report) && check && `The check-up: ${
      check.says}`];
    return {
      scope: cut(oneLine(`${model} on ${serversWords(lanes)}, ${few === many ? "" : `${few} to `}${plural(many, "user")
      } at once`), 300),
      verdict: isWrong(check) ? filled(SAYS.not_as_it_is, withTimes(report.recommends)) :
        (isRunning("load") ? "So far: " : "") + (verdict?.slice(0, -1) ?? "Throughput by number of users"),
      rough: oneLine(report.rough),
      details: [...details, why.filter(Boolean).map(oneLine).join(" "), oneLine(report.said.repeats)]
        .filter(Boolean).join("\n"),
      examine: !isRunning("load") && textsDiffer(report) && !isWrong(check) && !loaded.frame.opened,
      charts: [legend(lanes), ...CURVES.map((name) => curve(name, report.levels, lanes))],
      heads: [levelsHead(metrics)], levels: levelRows(report, lanes, metrics),
      notes: report.notes.map(oneLine).join(" "), circumstances: oneLine(report.said.circumstances),
    };
  },
  goes() {
    const { share = 0, text = "" } = loaded.frame ?? {};
    return { share, brief: isRunning("load") ? `${Math.floor(100 * share)} %` : "", says: oneLine(text), left: "" };
  },
  command() {
    const { frame, source } = loaded, { users, requests, length, dollars, words } = started;
    const { before, prompts } = promptsOption(source);
    const options = { model: frame.model, concurrency: users.replaceAll(" ", ""), requests,
      data: prompts ?? `synthetic:${words},${length}`, "max-new-tokens": source ? length : null,
      dollars: dollars || null, temperature: frame.temperature || null, seed: frame.seed || null, chat: frame.chat };
    return before + onServers("study", loaded.servers, frame.lanes, options);
  },
};

parts.requests.max = MAX_REQUESTS;
parts.loadLength.max = MAX_NEW_TOKENS;
parts.loadLength.value = Math.min(parts.loadLength.value, MAX_NEW_TOKENS);
parts.words.max = MAX_WORDS;
