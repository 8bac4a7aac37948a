// One sentence to read aloud about a race, by its own figures. Pure: no DOM.

const SAME = /^(identical|same_text)/;

// moment: before, waiting, running or over; tokens: of both lanes so far; ratio: of their speeds, as the board shows
// it; sense: faster, slower, even or none; kind: of the verdict; perStep: tokens a step of the lane with guesses, 0 if unknown;
// loops: its text repeats itself.
export function aloud({ moment, tokens: [left, right], total, ratio, sense, kind, perStep,
  loops = false }) {
  if (moment === "waiting") return "Now live, on this machine. It is about to start.";
  if (moment === "before") return `One model writes ${total ? `the same ${total} tokens` : "the same text"} twice: `
    + "left one token at a time, right with guesses that it checks. Which lane is done first?";
  if (moment === "running") return `So far ${right} tokens with guesses, ${left} without.`;
  const same = SAME.test(kind) ? `The same ${right} tokens` : "Not the same text";
  const times = Number.parseFloat(ratio);
  if (sense === "none") return `${same}.`;
  if (sense === "even") return `${same}, and no difference in speed.`;
  if (sense === "faster" && loops)
    return `${same}, ${ratio} as fast, but the text repeats itself, which is easy to guess: expect less elsewhere.`;
  if (!perStep) return `${same}, ${sense === "slower" ? "but slower: " : ""}${ratio} as fast.`;
  return sense === "faster" ?
    `${same}, ${ratio} as fast: a step of the model gave ${perStep.toFixed(2)} tokens instead of one.` :
    `${same}, but slower: ${ratio} as fast. A step gave ${perStep.toFixed(2)} tokens and took as long as `
      + `${(perStep / times).toFixed(2)} plain ones.`;
}
