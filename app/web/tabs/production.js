// Commands that serve a target with a drafter at a fixed k; where a server cannot, a sentence why. Their options are
// those of engine/remote/served_options.json and, for a load test, of `asIf`. Pure: no DOM.

import { SERVED } from "../host.js";
import { cut, DEFAULT_TARGET, joined, NEEDS_MARKS, oneLine, RANDOM_WEIGHTS } from "../base/text.js";

const HUB = /^[\w-][\w.-]*\/[\w.-]+$/;
const LOOKUP_MAX = 4;       // longest match that our n-gram drafter looks for

// Recordings are untrusted: names must not look like an option or contain control characters.
function isSafeName(name) { return name.length <= 400 && !/^-|^$|\t/.test(name) && !NEEDS_MARKS.test(name); }

// {name, revision} of `owner/name[@revision]`, of a folder, or of the default target.
function modelOf(text) {
  const [, name, revision] = /^(.*?)(?:@([^@]*))?$/s.exec(text);
  if (revision !== undefined && HUB.test(name)) return { name, revision };
  return { name: text === DEFAULT_TARGET ? `google/${DEFAULT_TARGET}` : text, revision: "" };
}

// {kind, argument, options after "#", copies, rule} of a drafter; copies: it is a hybrid, which also copies earlier
// text; rule: see serverRule.
export function drafterOf(text) {
  const [, kind, argument = ""] = /^([^:]*)(?::(.*))?$/s.exec(undrawn(text)), rule = serverRule(text);
  if (kind === "hybrid") return { ...drafterOf(argument.slice(argument.indexOf("+") + 1)), copies: true, rule };
  const at = argument.indexOf("#");
  return { kind, argument: at < 0 ? argument : argument.slice(0, at), options: at < 0 ? "" : argument.slice(at + 1),
    copies: false, rule };
}

// How a server would draw its drafts in a race that samples, "greedy", "probabilistic" or "" for neither; and its name
// without that.
export const serverRule = (drafter) => /~(greedy|probabilistic)$/.exec(drafter)?.[1] ?? "";
export const undrawn = (drafter) => drafter.replace(/~(greedy|probabilistic)$/, "");

// The drafters in a hybrid; none in others.
export const partsOf = (drafter) => /^hybrid:([^+]*)\+(.+)$/s.exec(drafter)?.slice(1) ?? [];

// {servers: [{name, version, command, notes}], notes, asIf: how to load-test such a server, or ""}. command is null if
// there is none.
export function productionOf(header, { drafter: text, k, perStep }) {
  const target = modelOf(header.model.name), drafter = drafterOf(text);
  const head = { ...drafter, ...modelOf(drafter.argument) }, why = noServer(header, target, head, k, text);
  if (why) return { servers: [], notes: [why], asIf: "" };
  const notes = [
    !HUB.test(target.name) && "The model is a local folder of the machine that raced; replace it with yours.",
    head.options && `The option \u201c#${oneLine(head.options)}\u201d has no equivalent on servers.`].filter(Boolean);
  const servers = Object.entries({ vLLM: vllmOf, SGLang: sglangOf, "llama.cpp": llamaOf }).flatMap(([name, make]) => {
    const { version, start, model, options } = SERVED[name], values = valuesOf(target, head, k);
    const serve = (more = options[head.kind], given = values) => joined([start.map((word) => withValues(word, given)),
      Object.entries(withValues({ ...model, ...more }, given)).map(([option, value]) => [option, spaced(value)])]);
    return [make(target, head, serve, values)].flat().map((made) => ({ name, version, command: null, ...made }));
  });
  return { servers, notes, asIf: perStep ? asIf(perStep.toFixed(2)) : "" };
}

// How to see a server under load with this race's tokens a step, whatever the prompts are.
const asIf = (length) => `To load-test a server as if every prompt went like this one, ${length} tokens a step (its `
  + 'texts are then worthless): vLLM with "rejection_sample_method": "synthetic", "synthetic_acceptance_length": '
  + `${length} in its --speculative-config, llama.cpp with --spec-synth-len ${length}, SGLang with `
  + `SGLANG_SIMULATE_ACC_LEN=${length} in its environment.`;

// Whether some server runs exactly this. Twin of engine/drafters/served.py.
export function canServe(header, option) {
  return productionOf(header, option).servers.some(({ command }) => command !== null);
}

// Why no server can do this; "" if one may.
function noServer(header, target, head, k, text) {
  if (RANDOM_WEIGHTS.test(header.model.name)) return "These are random weights: there is nothing to deploy.";
  if (head.kind === "synthetic") return "The drafts are made up: no server has such a drafter.";
  if (head.kind === "server") return "This race ran on servers; their start commands are not known here.";
  if (head.kind === "none") return "This lane makes no guesses, so the server needs no option.";
  if (!["ngram", "draft_model", "eagle3", "dflash"].includes(head.kind))
    return `No known server equivalent of the drafter ${cut(oneLine(head.kind), 80)}.`;
  if (isShipped(head)) return SHIPPED;
  if (typeof k !== "number") return "Servers draft chains of a fixed length: no automatic lengths, no trees like "
    + "these. What if computes every length. Nearest: SGLang's --speculative-adaptive, llama.cpp's --spec-draft-p-min; "
    + "vLLM's enable_adaptive_verification is for DSpark heads alone.";
  if ([`${text}~greedy`, `${text}~greedy@${k}`].some((name) => Object.hasOwn(header.tables ?? {}, name)))
    return "Here it draws with the model\u2019s own random numbers, as on no server. What if has the same drafted "
      + "greedily, as servers do.";
  const drafters = head.kind === "ngram" ? [] : [head.name];
  return [target.name, ...drafters, ...[target.revision, head.revision].filter(Boolean)].every(isSafeName) ? "" :
    "A name in this recording contains characters that are unsafe in a command.";
}

// isShipped: a head that ships with this project, for the default target only.
const isHead = ({ kind }) => ["eagle3", "dflash"].includes(kind);
export const isShipped = (head) => isHead(head) && head.argument === "";
const SHIPPED = `No command: its head ships with Photofinish. vLLM ${SERVED.vLLM.version} supports no heads for Gemma `
  + "3, and SGLang and llama.cpp have not been shown to read this one. Race n-gram to see what a server could do.";

// A published head in the speculators format, recognised by its name.
const isSpeculator = (head) => isHead(head) && HUB.test(head.name) && /speculator/i.test(head.name);

// What stands for the {placeholders} of options. The argument of an n-gram drafter is its shortest match.
function valuesOf(target, head, k) {
  const file = (name) => `${name.split(/[\\/]/).filter(Boolean).pop()}.gguf`;
  const given = /^[1-9]\d?$/.test(head.argument) ? Number(head.argument) : null;
  return { target: target.name, revision: target.revision, target_file: file(target.name), k, "k+1": k + 1,
    head: head.name, head_revision: head.revision, head_file: file(head.name),
    rule: head.rule, isDrawn: head.rule === "probabilistic" || "",
    least: given ?? 1, most: Math.max(given ?? 1, LOOKUP_MAX), match: given ?? LOOKUP_MAX };
}

// Options with these values, and without those whose value is "". Twin of `_filled` in engine/remote/served_options.py.
function withValues(value, values) {
  if (typeof value !== "object") return /^\{.+\}$/.test(value) ? values[value.slice(1, -1)] : value;
  const made = Object.entries(value).map(([name, member]) => [name, withValues(member, values)]);
  return Object.fromEntries(made.filter(([, member]) => member !== ""));
}

// A config as JSON with spaces, which reads and wraps better; other values as they are.
function spaced(value) {
  if (typeof value !== "object") return value;
  const members = Object.entries(value).map(([name, member]) => `${JSON.stringify(name)}: ${JSON.stringify(member)}`);
  return `{${members.join(", ")}}`;
}

const noHybrid = (name) => ({ notes: [`No command: ${name} has no hybrid drafter.`] });

function vllmOf(target, head, serve, { most, k }) {
  if (head.kind === "ngram") return { command: serve(), notes: [`Its lookup is simpler: the earliest of the longest `
    + `matches, up to ${most} tokens, and always drafts of ${k}.`] };
  if (isHead(head) && /\bgemma-3-/i.test(target.name))
    return { notes: ["No command: it supports no heads for Gemma 3."] };
  if (head.copies) return noHybrid("vLLM");
  const own = { command: serve(), notes: [] };
  return isSpeculator(head) ? [own, { command: serve({}, { target: head.name, revision: "" }),
    notes: ["The same, from the head's own config, which names its model and draft length."] }] : own;
}

function sglangOf(target, head, serve, { "k+1": tokens }) {
  const counts = `${tokens} includes the model's own token.`;
  if (head.kind === "ngram")
    return { command: serve(), notes: [counts, "Breadth 1: a single chain of guesses, as here."] };
  if (head.copies) return noHybrid("SGLang");
  if (head.rule === "probabilistic" && head.kind !== "eagle3")
    return { notes: ["No command: it drafts by probability with EAGLE heads only."] };
  if (isSpeculator(head) || (isHead(head) && !HUB.test(head.name)))      // our own heads have that format too
    return { notes: ["No command: it has no head in the speculators format for this model."] };
  return { command: serve(), notes: [counts] };
}

function llamaOf(target, head, serve) {
  const { ngram, [head.kind]: other } = SERVED["llama.cpp"].options, type = "--spec-type";
  const size = "size-m: length of a copy (default 48); size-n: length of the match.";
  const made = "Make .gguf files with convert_hf_to_gguf.py.";
  if (head.kind === "ngram") return { command: serve(), notes: [size, made] };
  return {
    command: head.copies ? serve({ ...other, ...ngram, [type]: `${ngram[type]},${other[type]}` }) : serve(),
    notes: [head.copies ? `It has this hybrid: copies first, then the other drafter. ${size}` : "", made,
      head.kind === "draft_model" ? "" : "Convert a head with --target-model-dir; not every head can be converted."]
      .filter(Boolean),
  };
}
