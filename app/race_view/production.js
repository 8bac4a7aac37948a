// The commands that serve what a race raced: its target, drafter and k. Read in the documentation and the source of the
// versions named here, and parsed by them (tools/served_commands.py). Pure: no DOM. Where a server cannot do it there
// is no command, and a sentence why.

const CHECKED = "2026-11-22";
const SERVERS = { vllm: ["vLLM", "0.32.0"], sglang: ["SGLang", "0.5.23"], llama: ["llama.cpp", "commit 0c1e570"] };
const OLD_FLAGS = "Gone, and still in many posts: --speculative-model and --num-speculative-tokens (vLLM); --draft-max "
  + "and --draft-min (llama.cpp).";
const HUB = /^[\w-][\w.-]*\/[\w.-]+$/;
const LOOKUP_MAX = 4;       // our n-gram drafter looks for a match of so many tokens before it looks for a shorter one
const LONGEST_PROMPT = 2000;
const LONG_CONTEXT = 8192;   // tokens of a user's text, beside those of the race

// A name from a recording may be a stranger's: none that a tool would take for an option, and none with a character
// that a terminal would take for a key.
function isSafeName(name) { return name.length <= 400 && !/^-|^$|\t/.test(name) && !NEEDS_MARKS.test(name); }

// {name, revision} of `owner/name[@revision]`, of a folder, or of the default target.
function modelOf(text) {
  const [, name, revision] = /^(.*?)(?:@([^@]*))?$/s.exec(text);
  if (revision !== undefined && HUB.test(name)) return { name, revision };
  return { name: text === DEFAULT_TARGET ? `google/${DEFAULT_TARGET}` : text, revision: "" };
}

// A lane's drafter in parts: what drafts (ngram, draft_model, eagle3, dflash, synthetic, none, ...), its argument, the
// options after "#", and whether it also copies, as the hybrid does.
function drafterOf(text) {
  const [, kind, argument = ""] = /^([^:]*)(?::(.*))?$/s.exec(text);
  if (kind === "hybrid") return { ...drafterOf(argument.slice(argument.indexOf("+") + 1)), copies: true };
  const at = argument.indexOf("#");
  return { kind, argument: at < 0 ? argument : argument.slice(0, at), options: at < 0 ? "" : argument.slice(at + 1),
    copies: false };
}

// k, and a sentence where the race had none that is fixed. steps: of the lane.
function lengthOf(k, steps) {
  if (k !== "auto") return { k, words: "" };
  const drafted = steps.map(numDrafted).filter((n) => n > 0);
  const median = Math.max(1, Math.round(percentile(drafted, 0.5) ?? 1));
  return { k: median, words: `Servers draft a fixed number: ${median} is the median of the steps that drafted here `
    + `(${drafted.length} of ${steps.length}).` };
}

// {servers: [{name, version, command, notes}], client: {curl, python}, notes}. header: of a recording; lane: the spec
// of the lane that drafts; steps: its steps. A command is null where there is none, client where there is no server.
function productionOf(header, lane, steps) {
  const target = modelOf(header.model.name), drafter = drafterOf(lane.drafter), { k, words } = lengthOf(lane.k, steps);
  const head = { ...drafter, ...modelOf(drafter.argument) }, why = noServer(header, target, head);
  if (why) return { servers: [], client: null, notes: [why] };
  const served = isShipped(head) ? { ...head, kind: "ngram", copies: false } : head;
  const notes = [words,
    head.copies && "This race's drafter copies where the text repeats, and asks another drafter elsewhere.",
    isShipped(head) && SHIPPED,
    !HUB.test(target.name) && "The target is a folder of the machine that raced: put yours in its place.",
    head.options && `\u201c#${oneLine(head.options)}\u201d of this drafter has no equivalent in a server.`,
    !memoryKnown(header, lane) && memoryWords(served)].filter(Boolean);
  const servers = Object.entries({ vllm: vllmOf, sglang: sglangOf, llama: llamaOf }).map(([id, make]) => {
    const [name, version] = SERVERS[id];
    return [make(target, served, k)].flat().map((made) => ({ name, version, command: null, ...made }));
  }).flat();
  return { servers, client: clientOf(header, target), notes };
}

// Why no server at all can do this; "" where one may.
function noServer(header, target, head) {
  if (RANDOM_WEIGHTS.test(header.model.name)) return "These weights are drawn by chance: there is nothing to serve.";
  if (head.kind === "synthetic") return "The drafts of this race are made up: no server has such a drafter.";
  if (head.kind === "server") return "This race was held on servers; what they were started with is not known here.";
  if (head.kind === "none") return "This lane drafts nothing: a server needs no option for that.";
  if (!["ngram", "draft_model", "eagle3", "dflash"].includes(head.kind))
    return `No server's equivalent of the drafter ${oneLine(head.kind).slice(0, 80)} is known.`;
  if (isShipped(head) && !head.copies) return ALONE_SHIPPED;
  const drafters = head.kind === "ngram" || isShipped(head) ? [] : [head.name];
  return [target.name, ...drafters, ...[target.revision, head.revision].filter(Boolean)].every(isSafeName) ? "" :
    "A name in this recording holds characters that no command should hold.";
}

// A head that ships here, for the default target alone.
const isHead = ({ kind }) => ["eagle3", "dflash"].includes(kind);
const isShipped = (head) => isHead(head) && head.argument === "";
const NO_HEADS = `Its extra network (head) ships with Photofinish alone: vLLM ${SERVERS.vllm[1]} drafts with heads for no Gemma 3, and `
  + "neither SGLang nor llama.cpp was shown to read this one.";
const SHIPPED = `${NO_HEADS} The commands are of its other half, the n-gram drafter.`;
const ALONE_SHIPPED = `${NO_HEADS} There is no command. Race n-gram here to see what a server could do.`;

// A published head in the speculators format, told by its name.
const isSpeculator = (head) => isHead(head) && HUB.test(head.name) && /speculator/i.test(head.name);

// Whether the recording says what the lane's drafter takes.
function memoryKnown(header, lane) { return Object.hasOwn(header.drafter_bytes ?? {}, lane.name); }

// What a drafter takes, {weights, cache_per_token} in bytes: {rows of [what, one user, all], words}. numTokens: of the
// race's prompt and text; numUsers: who share the weights, and have a cache each.
function memoryOf({ weights, cache_per_token: cache }, numTokens, numUsers) {
  if (weights + cache === 0) return { rows: [], words: "The drafter takes no memory: no weights, no cache." };
  const users = [...new Set([1, Math.max(1, numUsers)])];
  const cacheOf = (tokens) => [`cache of ${tokens.toLocaleString("en-US")} tokens`,
    ...users.map((n) => bytesWords(cache * tokens * n))];
  return { rows: [["weights", ...users.map(() => bytesWords(weights))], cacheOf(numTokens), cacheOf(LONG_CONTEXT)],
    words: `Cache: ${bytesWords(cache)} a token \u00d7 tokens \u00d7 users (keys and values). Weights: once for all `
      + "users, as they lie in the memory of the machine that raced; a server may keep them in more or fewer bits. What "
      + "is the target's own is not counted." };
}

// Three digits and a unit, as engine/measure/roofline.py has them.
function bytesWords(bytes) {
  const [size, unit] = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([least]) => bytes >= least)
    ?? [1, "bytes"];
  return `${Number((bytes / size).toPrecision(3))} ${unit}`;
}

function memoryWords({ kind }) {
  return kind === "ngram" ? "The drafter takes no memory: no weights, no cache." :
    "Memory that the drafter takes (weights, cache): not known from this recording.";
}

// The shortest match that an n-gram drafter copies from.
const leastMatch = ({ argument }, usual) => (/^[1-9]\d?$/.test(argument) ? Number(argument) : usual);

function joined(parts) { return parts.flat(Infinity).map(String).map(shellQuoted).join(" "); }

// JSON with spaces, so that it is read, and wrapped, more easily.
function spaced(config) {
  const text = JSON.stringify;
  return `{${Object.entries(config).map(([name, value]) => `${text(name)}: ${text(value)}`).join(", ")}}`;
}

function vllmOf(target, head, k) {
  const of = ["vllm", "serve", target.name, target.revision ? ["--revision", target.revision] : []];
  const serve = (method, more) =>
    joined([of, "--speculative-config", spaced({ method, ...more, num_speculative_tokens: k })]);
  if (head.kind === "ngram") {
    const least = leastMatch(head, 1), most = Math.max(least, LOOKUP_MAX);
    return { command: serve("ngram", { prompt_lookup_min: least, prompt_lookup_max: most }), notes: ["Its lookup is "
      + `simpler: the earliest of the longest matches, of at most ${most} tokens; it always drafts all ${k}.`] };
  }
  if (isHead(head) && /\bgemma-3-/i.test(target.name))
    return { notes: ["It drafts with heads for no Gemma 3. There is no command."] };
  const notes = head.copies ? ["vLLM has no hybrid: this is its other half, without the copies."] : [];
  const model = { model: head.name, ...(head.revision ? { revision: head.revision } : {}) };
  const own = { command: serve(head.kind, model), notes };
  return isSpeculator(head) ? [own, { command: joined(["vllm", "serve", head.name]),
    notes: ["The same by the head's own settings: its config names its target and its number of drafts."] }] : own;
}

function sglangOf(target, head, k) {
  const serve = (algorithm, more) => joined(["python", "-m", "sglang.launch_server", "--model-path", target.name,
    target.revision ? ["--revision", target.revision] : [], "--port", 8000,
    "--speculative-algorithm", algorithm, more]);
  const tokens = ["--speculative-num-draft-tokens", k + 1], counts = `${k + 1} counts the token that the target adds.`;
  if (head.kind === "ngram") return { command: serve("NGRAM", [tokens, "--speculative-ngram-max-bfs-breadth", 1]),
    notes: [counts, "Breadth 1: one chain of guesses, as here."] };
  if (isSpeculator(head) || (isHead(head) && !HUB.test(head.name)))      // our own heads have that format, too
    return { notes: ["It names no head in the speculators format for this target. There is no command."] };
  const of = ["--speculative-draft-model-path", head.name,
    head.revision ? ["--speculative-draft-model-revision", head.revision] : []];
  const chain = ["--speculative-num-steps", k, "--speculative-eagle-topk", 1];
  const algorithm = { draft_model: "STANDALONE", eagle3: "EAGLE3", dflash: "DFLASH" }[head.kind];
  return { command: serve(algorithm, [of, head.kind === "dflash" ? [] : chain, tokens]),
    notes: [counts, ...(head.copies ? ["SGLang has no hybrid: this is its other half, without the copies."] : [])] };
}

function llamaOf(target, head, k) {
  const file = (name) => `${name.split(/[\\/]/).filter(Boolean).pop()}.gguf`;
  const serve = (types, more) =>
    joined(["llama-server", "--model", file(target.name), "--port", 8000, "--spec-type", types, more]);
  const copying = ["--spec-ngram-simple-size-n", leastMatch(head, LOOKUP_MAX), "--spec-ngram-simple-size-m", k];
  const size = "size-m is the length of a copy (48 if left out), size-n that of the match.";
  const made = "convert_hf_to_gguf.py makes files of the form .gguf.";
  if (head.kind === "ngram") return { command: serve("ngram-simple", copying), notes: [size, made] };
  const type = { draft_model: "draft-simple", eagle3: "draft-eagle3", dflash: "draft-dflash" }[head.kind];
  return {
    command: serve(head.copies ? `ngram-simple,${type}` : type,
      ["--model-draft", file(head.name), "--spec-draft-n-max", k, head.copies ? copying : []]),
    notes: [head.copies ? `It has this hybrid: copies first, then the other drafter. ${size}` : "", made,
      head.kind === "draft_model" ? "" : "A head needs its option --target-model-dir; not every head can be converted."]
      .filter(Boolean),
  };
}

// JSON in which no character is left that a terminal would take for a key, or that nobody sees.
function typedJson(value) {
  return JSON.stringify(value).replace(/[\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (sign) =>
    `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// The race's own request, for any of the servers: all three speak OpenAI's protocol.
function clientOf({ prompt, spec: { params } }, target) {
  const text = prompt.text.length <= LONGEST_PROMPT ? prompt.text : "your prompt", json = typedJson;
  const asked = prompt.chat ? { messages: [{ role: "user", content: text }] } : { prompt: text };
  const body = { model: target.name, ...asked,
    max_tokens: params.max_new_tokens, temperature: params.temperature, top_p: params.top_p, seed: params.seed,
    ...(params.stop.length ? { stop: params.stop } : {}) };
  const more = params.top_k ? { top_k: params.top_k } : {}, call = prompt.chat ? "chat.completions" : "completions";
  const given = Object.entries({ ...body, ...(params.top_k ? { extra_body: more } : {}) });
  return {
    curl: `curl http://localhost:8000/v1/${call.replace(".", "/")} -H 'Content-Type: application/json' `
      + `-d ${shellQuoted(json({ ...body, ...more }))}`,
    python: `from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
answer = client.${call}.create(
    ${given.map(([name, value]) => `${name}=${json(value)},`).join("\n    ")}
)
print(answer.choices[0].${prompt.chat ? "message.content" : "text"})
`,
  };
}
