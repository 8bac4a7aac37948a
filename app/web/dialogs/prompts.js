// What a text of prompts holds, as engine/studies/prompts/prompts.py reads it. Pure: no DOM.

const JSON_LINES = /\.(jsonl|ndjson|json)$/i;

// The lines that are not blank, as [number, text].
function linesOf(text) {
  return text.replace(/^\ufeff/, "").split("\n").map((line, i) => [i + 1, line.replace(/\r$/, "")])
    .filter(([, line]) => line.trim());
}

// {num, how, isJson, numChats}: how many prompts, and how they were read, in words. isWhole: see `chosen`.
export function promptsIn(name, text, isWhole) {
  const lines = linesOf(text), isJson = JSON_LINES.test(name) || (lines[0]?.[1].trimStart().startsWith("{") ?? false);
  if (isWhole && !isJson) {
    const num = lines.length ? 1 : 0, high = text.trimEnd().split("\n").length;
    return { num, isJson, numChats: 0, how: high > 1 ? ` of ${high} lines` : "" };
  }
  const numChats = isJson ? lines.filter(([, line]) => chatIn(line)).length : 0;
  return { num: lines.length, isJson, numChats, how: !isJson ? lines.length > 1 ? ", one a line" : "" :
    ` (JSON lines${numChats ? `, ${numChats} with messages` : ""})` };
}

function parsed(line) {
  try { return JSON.parse(line) ?? {}; } catch { return {}; }
}
const chatIn = (line) => { const its = parsed(line); return "messages" in Object(its) && !("prompt" in Object(its)); };

// The text of the prompt in that line; null for a conversation, unless it is flattened, as by `flat` in that file.
export function promptAt({ text, isWhole, isJson }, number, isFlat) {
  if (isWhole && !isJson) return text;
  const line = linesOf(text).find(([at]) => at === number)?.[1];
  if (line === undefined || !isJson) return line ?? null;
  const { prompt, messages, turns } = Object(parsed(line));
  const flat = (each) => `${each.role}: ${each.content}\n\n`;
  const chat = isFlat && Array.isArray(messages) ? `${messages.map(flat).join("")}assistant:` : null;
  const its = prompt ?? (messages ? chat : turns?.[0]);
  return typeof its === "string" ? its : null;
}
