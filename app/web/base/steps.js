// One verification step: its rows and its tokens. Rows are numbered as in engine/core/spec.py: 0 is that of the last
// committed token, i + 1 that of draft token i; a tree has `parents`, the row that each token follows. Pure: no DOM.
// Twin of Step in engine/core/events.py; compared by test_a_step_of_the_page_is_the_engines.

// How many tokens a step drafted, even if the tokens themselves are unknown.
export const numDrafted = (step) => step.num_drafted ?? step.drafted.length;
export const widthWords = (width) => (width === null ? "unknown width" : `width ${width}`);
export const stepSeconds = (step) => step.draft_s + step.verify_s;

// The row that each drafted token follows.
export const followsOf = (step) => step.parents ?? step.drafted.map((_, i) => i);

// Which drafted tokens the loop keeps, by number, if `written` is what the model writes.
export function keptIf(drafted, parents, written) {
  const kept = [];
  for (let row = 0; kept.length < drafted.length; row = kept.at(-1) + 1) {
    const next = drafted.findIndex((id, i) => (parents[i] ?? i) === row && id === written[kept.length]);
    if (next < 0) break;
    kept.push(next);
  }
  return kept;
}

// Which drafted tokens were accepted, by number, in the order of the text.
export function keptOf(step) {
  if (!step.parents) return Array.from({ length: step.num_accepted }, (_, i) => i);
  return keptIf(step.drafted, step.parents, step.token_ids.slice(0, step.num_accepted));
}

// The row that decided each committed token.
export const rowsOf = (step) => [0, ...keptOf(step).map((i) => i + 1)].slice(0, step.token_ids.length);

// How many draft tokens lead to each row, which decides the token at `position` + depth.
export function depthsOf(step) {
  const depths = [0];
  for (const row of followsOf(step)) depths.push(depths[row] + 1);
  return depths;
}

// The most tokens that the step could have kept.
export const depthOf = (step) => (step.parents ? Math.max(...depthsOf(step)) : numDrafted(step));

// Whether something was drafted to follow the accepted tokens, and not accepted.
export function isRefuted(step) {
  if (step.token_ids.length === step.num_accepted) return false;   // a stop came first
  return step.parents ? step.parents.includes((keptOf(step).at(-1) ?? -1) + 1) : step.num_accepted < numDrafted(step);
}

// The drafted tokens, by number, that lead from the accepted ones to a leaf, each the likeliest to follow the one
// before, or the first where chances are not known: what was dropped at the place where the text goes on.
export function likeliest(step) {
  const follows = followsOf(step), path = [];
  for (let row = (keptOf(step).at(-1) ?? -1) + 1; ; row = path.at(-1) + 1) {
    const after = [...follows.keys()].filter((i) => follows[i] === row);
    if (!after.length) return path;
    path.push(after.reduce((a, b) => ((step.chances?.[b] ?? 0) > (step.chances?.[a] ?? 0) ? b : a)));
  }
}

// A step's tokens in reading order: accepted, rejected (if known), then the target's own. Of a tree's rejected tokens
// those of the likeliest branch come first; the others are `aside`. If a server's step only has its text as a whole,
// accepted and own tokens are "together".
export function tokensOf(step) {
  const num = step.num_accepted, kept = new Set(keptOf(step)), branch = likeliest(step);
  const committed = (kind) => (id, i) => ({ kind, id, text: step.pieces.length ? step.pieces[i] : `#${id} ` });
  const own = numDrafted(step) === 0 ? "plain" : isRefuted(step) ? "correction" : "bonus";
  const all = step.token_ids.map((id, i) => committed(i < num ? "accepted" : own)(id, i));
  if (num && step.num_drafted && all.slice(1).every(({ text }) => text === "")) all[0].kind = "together";
  const others = [...step.drafted.keys()].filter((i) => !kept.has(i) && !branch.includes(i));
  const rejected = [...branch, ...others].map((i) => ({ kind: "rejected", id: step.drafted[i],
    text: step.drafted_pieces.length ? step.drafted_pieces[i] : `#${step.drafted[i]} `, aside: others.includes(i) }));
  return [...all.slice(0, num), ...rejected, ...all.slice(num)];
}

export function stepWords(step) {
  const drafted = numDrafted(step), kept = step.num_accepted;
  return drafted ?
    `step ${step.index + 1}: ${kept} of ${drafted} guesses kept`
      + (step.parents ? `, of a tree ${depthOf(step)} deep` : "")
      + (step.num_drafted > kept ? "; which ones were dropped is not known" : "") :
    `step ${step.index + 1}: no guess`;
}
