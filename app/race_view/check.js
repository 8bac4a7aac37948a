// A recording from a stranger, checked field by field. Nothing here trusts, merges or evaluates what it reads.
// Twin of engine/recordings/check.py; compared by test_a_broken_file_gives_one_sentence_and_changes_nothing.

const Check = (() => {
const MAX_FILE_BYTES = 64 * 1024 * 1024;
const MAX_LANES = 16, MAX_K = 63, MAX_AUTO_K = 15;
const MAX_STOP_STRINGS = 16, MAX_STOP_LENGTH = 200, MAX_NEW_TOKENS = 100000;
const RULES = ["coupled", "rejection"];
const ROLES = ["plain", "baseline", "speculative"];
const VERDICT_KINDS = ["identical_bits", "identical_tokens", "near_tie", "different", "same_distribution",
  "same_text", "other_text"];

const { MAX_SECONDS, MAX_TOKEN_ID, MAX_WIDTH, MAX_NAME, Unusable, shown, shape, isCount, isObject, text, shortText, count,
  number, time, flag, width, anyWidth, token, maybe, ifThere, list, fields } = Shapes;
const { BESIDE, checkBeside, isClose, namesOf } = CheckBeside;
const word = shape(`a string of 1 to ${MAX_NAME} characters`, (value) => typeof value === "string" && value !== "" &&
  value.length <= MAX_NAME);
const oneOf = (words) => shape(`one of ${words.join(", ")}`, (value) => words.includes(value));

const DIFFERENCE = fields({ position: count, tokens: list(token, 2), pieces: list(text, 2),
  widths: list(maybe(width), 2), margin: maybe(number) });
const VERDICT = fields({ kind: oneOf(VERDICT_KINDS),
  rows_compared: count, rows_different: maybe(count), first_difference: maybe(DIFFERENCE), sentence: text });
const OLD_LANE = { name: word, drafter: word,
  k: shape(`auto or an integer from 0 to ${MAX_K}`, (value) => value === "auto" || (isCount(value) && value <= MAX_K)),
  width: anyWidth, rule: oneOf(RULES) };
const LANE = { ...OLD_LANE, role: oneOf(ROLES) };
const between = (low, high) => shape(`a number from ${low} to ${high}`, (value) => typeof value === "number" &&
  value >= low && value <= high);
const PARAMS = { seed: count, top_p: between(Number.MIN_VALUE, 1),
  temperature: shape("0 or a number from 0.001 to 100", (value) => value === 0 || (typeof value === "number" &&
  value >= 1e-3 && value <= 100)),
  top_k: shape("an integer from 0 to 2147483647", (value) => isCount(value) && value < 2 ** 31),
  max_new_tokens: shape(`an integer from 1 to ${MAX_NEW_TOKENS}`, (value) => isCount(value) && value >= 1 &&
  value <= MAX_NEW_TOKENS), stop: shape(`up to ${MAX_STOP_STRINGS} strings of 1 to ${MAX_STOP_LENGTH} characters`,
  (value) => Array.isArray(value) && value.length <= MAX_STOP_STRINGS && value.every((item) =>
  typeof item === "string" && item !== "" && [...item].length <= MAX_STOP_LENGTH)) };
const recordingOf = (lane, more) => fields({
  model: fields({ name: shortText, revision: maybe(shortText), digest: maybe(shortText), dtype: shortText,
    licence: maybe(shortText) }),
  device: fields({ type: shortText, name: shortText, threads: maybe(count) }),
  versions: namesOf,
  commit: maybe(shortText),
  created: shortText,
  widths: fields({ width: maybe(width), widths_class: list(width), plain_width: maybe(width), exact: flag,
    cache_length: count, note: shortText }),
  spec: fields({ lanes: list(fields(lane)), params: fields(PARAMS), audit: flag, solo: flag }),
  prompt: fields({ text, token_ids: list(token), chat: ifThere(flag) }),
  events: list(fields({})),
  synthetic: ifThere(list(shortText)), stopped: ifThere(flag), runs: ifThere(fields({ sentence: shortText })),
  places: ifThere(fields({ lanes: namesOf, sentence: shortText })),
  ...more,
});
const SCHEMAS = new Map([[1, recordingOf(OLD_LANE, { verdict: maybe(VERDICT), plain_verdict: maybe(VERDICT) })],
  [2, recordingOf(LANE, { verdicts: fields({}), ...BESIDE })]]);
const COMMON = { lane: shortText, clock_s: time, type: text, wall_s: ifThere(time) };
const checksum = shape("a checksum", (value) => isCount(value) && value <= 2 ** 64);
const EVENTS = new Map(Object.entries({
  started: { ...COMMON, num_prompt_tokens: count, prefill_s: time },
  step: {
    ...COMMON, index: count, position: count, drafted: list(token), num_accepted: count, token_ids: list(token),
      draft_s: time, verify_s: time, width: maybe(width),
    num_drafted: ifThere(shape("a positive integer", (value) => isCount(value) && value > 0)),
    copied: ifThere(list(count, 2)), pieces: list(text), drafted_pieces: list(text), checksums: list(checksum),
  },
  finished: { ...COMMON,
    reason: shape("stop, stop_string or length", (value) => ["stop", "stop_string", "length"].includes(value)),
    num_tokens: count, decode_s: time },
  failed: { ...COMMON, message: text },
}));

// A recording of schema 1 in the form of schema 2: roles follow from the names; `verdict` was on the last speculative
// lane, `plain_verdict` on the plain one. What schema 1 does not know does not come along:
// tables with their pieces and margins, costs, oracles, candidates, promises and memory are left out.
function fromSchema1({ verdict, plain_verdict: plainVerdict, tables, table_pieces: pieces, table_margins: margins, costs,
  oracles, candidates, promises, drafter_bytes: drafterBytes, ...old }) {
  const role = (name) => (name === "plain" || name === "baseline" ? name : "speculative");
  const lanes = old.spec.lanes.map((lane) => ({ ...lane, role: role(lane.name) }));
  const last = Object.fromEntries(lanes.map((lane) => [lane.role, lane.name]));
  const found = last.baseline === undefined ? [] : [[last.speculative, verdict], [last.plain, plainVerdict]];
  return { ...old, schema: 2, spec: { ...old.spec, lanes },
    verdicts: Object.fromEntries(found.filter(([lane, value]) => lane !== undefined && value !== null)) };
}

// The recording, in the form of schema 2. Throws Unusable, with one sentence, unless it is a whole one whose events
// agree with each other.
function checkRecording(recording) {
  if (!isObject(recording)) throw new Unusable(`it must be a JSON object, not ${shown(recording)}`);
  if (recording.format !== "photofinish-race")
    throw new Unusable(`it is no Photofinish recording: its format is ${shown(recording.format)}`);
  if (!SCHEMAS.has(recording.schema))
    throw new Unusable(
      `its schema is ${shown(recording.schema)}; this page reads schema ${[...SCHEMAS.keys()].join(" and ")}`);
  SCHEMAS.get(recording.schema)(recording, "it");
  if (recording.schema === 1) recording = fromSchema1(recording);
  noMore(PARAMS, recording.spec.params, "params");
  recording.spec.lanes.forEach(checkLane);
  const lanes = new Map(recording.spec.lanes.map((spec) =>
    [spec.name, { spec, started: false, ended: false, clock: 0, wall: 0, steps: [], ids: [], sums: [],
      text: "", prompt: spec.drafter === "server" ? [] : recording.prompt.token_ids }]));
  if (!lanes.size || lanes.size > MAX_LANES || lanes.size !== recording.spec.lanes.length)
    throw new Unusable(
      `it has ${recording.spec.lanes.length} lanes; from 1 to ${MAX_LANES} with different names can be shown`);
  const names = (role) => recording.spec.lanes.filter((lane) => lane.role === role).map((lane) => lane.name);
  for (const role of ["plain", "baseline"]) {
    if (names(role).length > 1) throw new Unusable(`it has ${names(role).length} ${role} lanes; a race has one`);
    if (lanes.has(role) && lanes.get(role).spec.role !== role) throw new Unusable(`its lane ${role} has another role`);
  }
  for (const event of recording.events) checkEvent(event, lanes, recording);
  for (const [name, lane] of lanes)
    if (!lane.ended && !recording.stopped)
    throw new Unusable(`lane ${shown(name)} never ends: the recording is incomplete`);
  const [baseline] = names("baseline");
  for (const [name, verdict] of Object.entries(recording.verdicts)) {
    if (!lanes.has(name) || name === baseline || baseline === undefined)
      throw new Unusable(`it has a verdict on ${shown(name)}, which is no lane that is compared with a baseline`);
    VERDICT(verdict, `the verdict on lane ${shown(name)}`);
    checkClaim(`verdict on lane ${shown(name)}`, verdict.kind, lanes.get(baseline), lanes.get(name));
  }
  checkBeside(recording, lanes);
  return recording;
}

function noMore(known, value, what) {
  const odd = Object.keys(value).find((key) => !Object.hasOwn(known, key));
  if (odd !== undefined) throw new Unusable(`${what} has no field ${shown(odd)}`);
}

function checkLane(lane) {
  const who = `lane ${shown(lane.name)}`, least = lane.k === "auto" ? 2 : lane.k + 1;
  noMore(LANE, lane, who);
  if (typeof lane.width === "number" && lane.width < least)
    throw new Unusable(`${who} has width ${lane.width}, which must be at least ${least}`);
  if (lane.drafter !== "none" && lane.k === 0)
    throw new Unusable(`${who} has drafter ${shown(lane.drafter)} and drafts nothing: its k is 0`);
}

function checkEvent(event, lanes, recording) {
  const known = EVENTS.get(event.type), lane = lanes.get(event.lane);
  if (!known) throw new Unusable(`unknown event type ${shown(event.type)}`);
  fields(known)(event, `a ${event.type} event`);
  noMore(known, event, `a ${event.type} event`);
  if (!lane) throw new Unusable(`an event belongs to lane ${shown(event.lane)}, which the race does not have`);
  const who = `lane ${shown(event.lane)}`;
  if (lane.ended) throw new Unusable(`${who} goes on after its end`);
  if (event.type === "started") {
    if (lane.started) throw new Unusable(`${who} starts twice`);
    if (lane.prompt.length && event.num_prompt_tokens !== lane.prompt.length)
      throw new Unusable(
        `${who} started on ${event.num_prompt_tokens} prompt tokens, `
          + `but the prompt has ${lane.prompt.length}`);
    lane.started = true;
  } else if (event.type !== "failed" && !lane.started) throw new Unusable(`${who} does not begin with a started event`);
  if (event.type === "step") checkStep(event, lane, who, recording.spec);
  if (event.type === "finished" || event.type === "failed") lane.ended = true;
  if (event.type === "finished" && event.num_tokens !== lane.ids.length)
    throw new Unusable(`${who} finished with ${event.num_tokens} tokens, but its steps committed ${lane.ids.length}`);
  for (const value of event.type === "finished" ? [event.clock_s, event.decode_s] : [event.clock_s]) {
    if (!isClose(lane.clock, value))
      throw new Unusable(`${who} stands at ${value} s where its steps took ${lane.clock} s`);
  }
  if (event.wall_s < lane.wall) throw new Unusable(`${who} has wall_s ${event.wall_s} after ${lane.wall}`);
  lane.wall = event.wall_s ?? lane.wall;
}

function checkStep(step, lane, who, spec) {
  const which = `step ${step.index} of ${who}`, kept = step.num_accepted, committed = step.token_ids.length;
  const drafted = numDrafted(step), { k, width: laneWidth } = lane.spec;
  const most = k !== "auto" ? k : lane.spec.drafter === "server" ? MAX_K : typeof laneWidth === "number" ? Math.min(MAX_AUTO_K, laneWidth - 1) : MAX_AUTO_K;
  if (step.index !== lane.steps.length || step.position !== lane.ids.length)
    throw new Unusable(
      `${which} at position ${step.position} comes where step ${lane.steps.length} at position ${lane.ids.length} should`);
  if (step.drafted.length && step.num_drafted)
    throw new Unusable(`${which} names drafted tokens and has num_drafted, which is for those that are not known`);
  const together = step.width === null && drafted === 0;
  if (kept > drafted || committed < Math.max(1, kept) || (committed > kept + 1 && !together) ||
    step.drafted.slice(0, kept).some((id, i) => id !== step.token_ids[i])) {
    throw new Unusable(
      `${which} contradicts itself: ${kept} accepted of ${drafted} drafted, ${committed} committed`);
  }
  if (step.copied && !isCopy(step, lane))
    throw new Unusable(`${which} says it copied from place ${step.copied[1]} of the text, which has other tokens`);
  if (drafted > most || (step.width !== null && drafted >= step.width))
    throw new Unusable(`${which} drafted ${drafted} tokens, with k ${k} and ${widthWords(step.width)}`);
  if (lane.ids.length + committed > spec.params.max_new_tokens)
    throw new Unusable(`${which} goes beyond the ${spec.params.max_new_tokens} tokens of the race`);
  for (const [name, size] of [["pieces", committed], ["drafted_pieces", step.drafted.length], ["checksums", committed]])
    {
    if (step[name].length && step[name].length !== size)
      throw new Unusable(`${which} has ${step[name].length} ${name} for ${size} tokens`);
  }
  if (step.checksums.length > 0 !== (spec.audit && lane.spec.drafter !== "server"))
    throw new Unusable(`${which} has ${step.checksums.length} checksums, but audit is ${spec.audit}`);
  lane.steps.push(step);
  lane.clock += step.draft_s + step.verify_s;
  step.token_ids.forEach((id) => lane.ids.push(id));
  lane.text += step.pieces.join("");
  step.checksums.forEach((value) => lane.sums.push(value));
}

// A copy may run over the end of the text, into itself.
function isCopy({ copied: [place, start], drafted }, { prompt, ids }) {
  const before = prompt.length + ids.length + place;
  const at = (i) => (i < prompt.length ? prompt[i] : ids[i - prompt.length] ?? drafted[i - prompt.length - ids.length]);
  return place < drafted.length && start < before && drafted.slice(place).every((id, i) => id === at(start + i));
}

// A verdict may not claim more than the events beside it. (Checksums are compared as doubles: their upper 53 bits.)
function checkClaim(key, kind, a, b) {
  const common = Math.min(a.ids.length, b.ids.length);
  const same = (x, y) => x.slice(0, common).every((value, i) => value === y[i]);
  const bits = common === 0 || (a.sums.length > 0 && same(a.sums, b.sums));
  const texts = a.text.startsWith(b.text) || b.text.startsWith(a.text);
  if ((kind.startsWith("identical") && !same(a.ids, b.ids)) || (kind === "identical_bits" && !bits) ||
    (kind === "same_text" && !texts))
    throw new Unusable(`its ${key} says ${kind}, but its events differ`);
}

// The recording in the text of a file. Throws Unusable.
function readRecording(source) {
  let value;
  try { value = JSON.parse(source); } catch { throw new Unusable("it is not JSON"); }
  try { return checkRecording(value); } catch (error) {
    if (error instanceof RangeError) throw new Unusable("it is nested too deeply or too large");
    throw error;
  }
}

// The text of one member of a JSON object, as it was written: integers of 64 bits survive, which JSON.parse would
// round.
function rawMember(source, key) {
  let depth = 0, start = -1, name = null;
  for (let i = 0; i < source.length; i++) {
    const character = source[i];
    if (character === '"') {
      const from = i;
      for (i += 1; i < source.length && source[i] !== '"'; i++) if (source[i] === "\\") i += 1;
      if (depth === 1 && start < 0) name = source.slice(from + 1, i);
    } else if (character === "{" || character === "[") depth += 1;
    else if (character === ":" && depth === 1 && name === key && start < 0) start = i + 1;
    else if (character === "}" || character === "]" || (character === "," && depth === 1)) {
      if (character !== ",") depth -= 1;
      if (start >= 0 && (depth === 0 || (depth === 1 && character === ","))) return source.slice(start, i).trim();
    }
  }
  return null;
}

return { MAX_FILE_BYTES, Unusable, readRecording, rawMember };
})();
