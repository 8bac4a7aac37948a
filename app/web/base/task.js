// Whether a prompt asks for something, and how the answer could begin. A model without a chat template continues such a
// text instead of answering it. Pure: no DOM.

const LANGUAGE = "(?:sql|python|javascript|typescript|java|bash|rust|go|c|c\\+\\+|json)";
const TASK = new RegExp("^(?:please|(?:can|could|would|will) you|i (?:need|want|would like) (?:you|an?|the)|let's|"
  + "(?:what|who|where|when|why|how|which) (?:is|are|was|were|do|does|did|can|could|should|would|to|much|many)|"
  + "(?:write|draft|compose|reply|answer|explain|describe|summari[sz]e|translate|rewrite|shorten|improve|correct|"
  + "generate|create|invent|list|give|tell|suggest|compare|help|show|think of|extract|convert|turn|implement|"
  + `return an?|${LANGUAGE} (?:query|function|script|program)))\\b(?!\\s*[=(:,.]).*[^:,]$`
  + `|^${LANGUAGE}: \\S|^[a-z ]{9,},? in ${LANGUAGE}[.!]?$`, "iu");
// A task with a colon, before the lines that it is about.
const ABOVE = /^(?:explain|summari[sz]e|translate|rewrite|shorten|improve|correct|extract|convert|turn)\b.*:\s*\n/i;

// Else only the last line counts: a prompt whose last line begins the answer is one that the model can continue.
export function asks(text) {
  const last = text.trimEnd().split("\n").at(-1).trim();
  return /[?\uff1f]$/.test(last) || TASK.test(last) || (ABOVE.test(text.trimStart()) && /[\p{L}\d.!)"]$/u.test(last));
}

const groupIn = (text, pattern, other) => pattern.exec(text)?.slice(1).find(Boolean) ?? other;
const TO = /\b(?:to|asking|telling) (?:(?:my|our|the|an?) (\w+)|((?:M[rs]s?|Dr)\.? \w+))/;
const CODE = /\b(python|javascript|typescript|java|bash|rust|go|c\+\+|c)\b/i;
// By what is asked for, the first that fits.
const STARTS = [
  [/\btranslat|\bhow do you say\b/i, (text) => `${groupIn(text, /\b(?:in|to|into) (\p{Lu}\p{Ll}+)/u, "Translation")}:`],
  [/\b(?:sql|mysql|sqlite|postgres\w*)\b/i, () => "```sql\nSELECT"],
  [/\bjson\b/i, (text) => `\`\`\`json\n${/\b(?:array|list)\b/i.test(text) ? "[" : "{"}`],
  [/\b(?:e-?mail|mail|letter|message|invitation|reply)\b/i, (text) => `Dear ${groupIn(text, TO, "Sir or Madam")},`],
  [new RegExp(`\\b(?:function|script|program|class|algorithm|code|implement)\\b|\\bin ${LANGUAGE}[.!]?$`, "i"),
    (text) => `\`\`\`${groupIn(text, CODE, "python").toLowerCase()}\n`],
  [/\b(?:list|ideas|names|steps|tips|ways|reasons|things|examples|advantages)\b/i, () => "1."],
  [/^/, () => "Answer:"],
];
// The same text with the beginning of an answer, if it asks for something; and such a text without it, null of others.
export const withStart = (text) => (asks(text)
  ? `${text.trimEnd()}\n\n${STARTS.find(([wanted]) => wanted.test(text))[1](text)}` : text);
export const withoutStart = (text) => [text.slice(0, Math.max(0, text.lastIndexOf("\n\n")))]
  .find((before) => before && withStart(before) === text) ?? null;
