// Whether a prompt asks for something. A model without a chat template continues such a text instead of answering it.
// Pure: no DOM.

const TASK = new RegExp("^(?:please|(?:can|could|would|will) you|i (?:need|want|would like) (?:you|an?|the)|let's|"
  + "(?:what|who|where|when|why|how|which) (?:is|are|was|were|do|does|did|can|could|should|would|to|much|many)|"
  + "(?:write|draft|compose|reply|answer|explain|describe|summari[sz]e|translate|rewrite|shorten|improve|correct|"
  + "generate|create|invent|list|give|tell|suggest|compare|help|show|think of))\\b(?!\\s*[=(:,.]).*[^:,]$", "iu");

// Only the last line counts: a prompt whose last line begins the answer is one that the model can continue.
export function asks(text) {
  const last = text.trimEnd().split("\n").at(-1).trim();
  return /[?\uff1f]$/.test(last) || TASK.test(last);
}

// What to say about it, in parts, the first of which and every other one may be left out on a phone.
export const HINT = ["This model ", "continues texts", "; it does not answer", ". Start the answer", " yourself"];
export const hintWords = (text) => `${HINT.join("")}: \u201c${answerStart(text)} \u2026\u201d`;

// How an answer to it could begin.
export const answerStart = (text) =>
  (/\b(?:e-?mail|mail|letter|message|invitation)\b/i.test(text) ? "Dear Ms Smith," : "Answer:");
