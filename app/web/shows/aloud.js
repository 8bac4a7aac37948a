// One sentence to read aloud about a race, by its own figures. Pure: no DOM.

import { SAYS } from "../host.js";
import { noResult, percent, saysOf } from "../base/text.js";

export const ASKS = "How fast will it be? Raise hands: slower, no gain, 1.5\u00d7, 2\u00d7, 3\u00d7 or more.";

// moment: before, waiting, running or over; tokens: of both lanes so far; ratio: of their speeds, as the board shows
// it; sense: faster, slower, even or none; kind: of the verdict, "" if there is none; perStep: tokens a step of the
// lane with guesses, 0 if unknown; cost: what its step costs in plain ones; kept: share of its guesses, null if it made
// none; cautions: see cautionsOf.
export function aloud({ moment, tokens: [left, right], ratio, sense, kind, perStep, cost, kept, cautions = {} }) {
  if (moment === "waiting") return `Now live. ${ASKS}`;
  if (moment === "before") return `One lane guesses, and the model checks. ${ASKS}`;
  if (moment === "running" || !kind) return `So far ${right} tokens with guesses, ${left} without.`;
  const none = noResult({ kind });
  if (none) return `No result: ${none}.${kind === "different" ? " Both texts should be the same." : ""}`;
  const same = saysOf({ kind })?.is_same ? `The same ${right} tokens` : "Not the same text";
  if (sense === "none") return `${same}.`;
  if (cautions.loop) return `${same}, but no result: ${SAYS.loops}.`;
  const result = `${same}, ${sense === "slower" ? "but slower: " : ""}${ratio} as fast`;
  if (cautions.whole) return `${result}. ${cautions.says}`;
  if (sense === "even") return `${same}, and no difference in speed.`;
  if (sense === "faster" && cautions.copies) return `${result}, but the text copies the prompt: expect less elsewhere.`;
  if (!perStep) return `${result}.`;
  const step = `step gave ${perStep.toFixed(2)} tokens and cost as much as ${cost.toFixed(2)} plain ones.`;
  if (sense === "faster") return `${result}: a ${step}`;
  return `${result}. ${kept === null ? "A" : `Of its guesses ${percent(kept)} were right, so a`} ${step}`;
}
