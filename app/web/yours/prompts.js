// What a text of prompts holds, as engine/studies/prompts/prompts.py reads it. Pure: no DOM.

const JSON_LINES = /\.(jsonl|ndjson|json)$/i, ARRAY = /^\s*\[\s*\{/;
const FIELDS = ["prompt", "messages", "turns", "conversations", "text", "question", "instruction"];
const LISTS = ["turns", "conversations"], DETAILS = ["input", "context"], PERSON = ["user", "human"];

// The lines that are not blank, as [number, text].
function linesOf(text) {
  return text.split("\n").map((line, i) => [i + 1, line.replace(/\r$/, "")]).filter(([, line]) => line.trim());
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return null; }
}

// {num, how, isJson, numChats, entries}: how many prompts, how they were read, in words, and each by its line, for
// `promptAt`: its text, or what its JSON says. isWhole: see `chosen`. The server names what cannot be read.
export function promptsIn(name, given, isWhole) {
  const text = given.replace(/^\ufeff/, ""), array = ARRAY.test(text) ? [].concat(parsed(text)) : null;
  const lines = array ? [] : linesOf(text);
  const isJson = array !== null || JSON_LINES.test(name) || (lines[0]?.[1].trimStart().startsWith("{") ?? false);
  if (isWhole && !isJson) {
    const num = lines.length ? 1 : 0, high = text.trimEnd().split("\n").length;
    return { num, isJson, numChats: 0, entries: new Map([[1, text]]), how: high > 1 ? ` of ${high} lines` : "" };
  }
  const all = array ? array.map((value, i) => [i + 1, value]) :
    isJson ? lines.map(([number, line]) => [number, parsed(line)]) : lines;
  const entries = new Map(all.filter(([, value]) => !isJson || !isSilent(value)));
  const numChats = isJson ? [...entries.values()].filter((value) => meant(value).chat).length : 0;
  return { num: entries.size, isJson, numChats, entries, how: !isJson ? entries.size > 1 ? ", one a line" : "" :
    ` (JSON${array ? "" : " lines"}${numChats ? `, ${numChats} with messages` : ""})` };
}

// {text} of a prompt, or {chat}, the messages of a conversation.
function meant(value) {
  const object = Object(value), key = FIELDS.find((field) => Object.hasOwn(object, field)), list = object[key];
  if (!Array.isArray(list)) {
    const about = key === "instruction" && DETAILS.map((name) => object[name]).find((detail) => detail
      && typeof detail === "string");
    return { text: about ? `${list}\n\n${about}` : list };
  }
  if (key === "messages" && (list.length === 1 || list.some((message) => !PERSON.includes(message?.role))))
    return { chat: list };
  return ["prompt", "messages", ...LISTS].includes(key) ? { text: firstTurn(list) } : { text: null };
}

function firstTurn(turns) {
  const turn = turns.find((entry) => typeof entry === "string"
    || PERSON.includes(Object(entry).role ?? Object(entry).from ?? PERSON[0]));
  return typeof turn === "string" ? turn : turn?.content ?? turn?.value;
}

// Whether it is a conversation without a word of a person.
function isSilent(value) {
  const key = FIELDS.find((field) => Object.hasOwn(Object(value), field));
  return key === "conversations" && Array.isArray(value[key]) && !meant(value).text;
}

// The text of the prompt on that line; null for a conversation, unless it is flattened, as by `flat` in that file. The
// first argument is a result of `promptsIn`.
export function promptAt({ entries, isJson }, number, isFlat) {
  const value = entries.get(number) ?? null;
  if (!isJson) return value;
  const { text, chat } = meant(value), flat = (message) => `${message.role}: ${message.content}\n\n`;
  const prompt = chat && isFlat ? `${chat.map(flat).join("")}assistant:` : text;
  return typeof prompt === "string" ? prompt : null;
}
