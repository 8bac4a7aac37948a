// One sentence to read aloud about a race, by its own figures. Pure: no DOM.

const SAME = /^(identical|same_text)/;
// What an audience can bet on, and up to which ratio each is the nearest.
const BETS = [[1.25, "no gain"], [1.75, "1.5\u00d7"], [2.5, "2\u00d7"], [Infinity, "3\u00d7 or more"]];
const ASKS = `How much faster will it be? Raise hands: ${BETS.map(([, bet]) => bet).join(", ")}.`;

// moment: before, waiting, running or over; tokens: of both lanes so far; ratio: of their speeds, as the board shows
// it; sense: faster, slower, even or none; kind: of the verdict, "" if there is none; perStep: tokens a step of the
// lane with guesses, 0 if unknown; cost: what its step costs in plain ones; loops: its text repeats itself.
export function aloud({ moment, tokens: [left, right], ratio, sense, kind, perStep, cost, loops = false }) {
  if (moment === "waiting") return `Now live. ${ASKS}`;
  if (moment === "before") return `The right lane guesses, and the model checks. ${ASKS}`;
  if (moment === "running" || !kind) return `So far ${right} tokens with guesses, ${left} without.`;
  const same = SAME.test(kind) ? `The same ${right} tokens` : "Not the same text", value = Number.parseFloat(ratio);
  if (sense === "none") return `${same}.`;
  const [, bet] = BETS.find(([most]) => sense === "even" || value < most), nearest = `Nearest bet: ${bet}.`;
  if (sense === "even") return `${same}, and no difference in speed. ${nearest}`;
  const result = `${same}, ${sense === "slower" ? "but slower: " : ""}${ratio} as fast`;
  if (sense === "faster" && loops)
    return `${result}, but the text repeats itself: expect less elsewhere. ${nearest}`;
  if (!perStep) return `${result}. ${nearest}`;
  return `${result}${sense === "faster" ? `: a step of the model gave ${perStep.toFixed(2)} tokens instead of one.` :
    `. A step gave ${perStep.toFixed(2)} tokens and cost as much as ${cost.toFixed(2)} plain ones.`} ${nearest}`;
}
