// The game "Be the drafter": what somebody types is a draft, and the recorded text of the target accepts it or strikes it
// out, as a verification step does. Pure: no DOM.

const STEPS_A_ROUND = 10;

// What was typed, cut where the tokens of the text end: a guess for each token that it reaches into. `pieces`: the text
// from there on. A space before the first word need not be typed, since it is part of the word's token; one typed after
// the last word is no guess.
function guessesOf(typed, pieces) {
  const guesses = [];
  let rest = typed && typed[0] !== " " && /^ \S/.test(pieces[0] ?? "") ? ` ${typed}` : typed;
  for (let i = 0; rest && i < pieces.length; i++) {
    guesses.push(rest.slice(0, pieces[i].length));
    rest = rest.slice(pieces[i].length);
  }
  const last = guesses.length - 1;
  return guesses[last] === " " && pieces[last] !== " " ? guesses.slice(0, -1) : guesses;
}

// A round of one player: verification steps over `pieces`, the tokens of the whole text, from one position on.
class Round {
  constructor(pieces, from) { Object.assign(this, { pieces, from, at: from, steps: [] }); }

  get over() { return this.steps.length === STEPS_A_ROUND || this.at === this.pieces.length; }

  // One step with what was typed as its draft; its form is that of a step event, in texts.
  guess(typed) {
    const rest = this.pieces.slice(this.at), drafted = guessesOf(typed, rest);
    let kept = 0;
    while (kept < drafted.length && drafted[kept] === rest[kept]) kept += 1;
    const step = { position: this.at, drafted, drafted_pieces: drafted, num_accepted: kept, pieces: rest.slice(0, kept + 1),
      token_ids: rest.slice(0, kept + 1) };
    this.at += step.pieces.length;
    this.steps.push(step);
    return step;
  }
}

// What steps came to. `kept` and `guessed` are tokens of drafts, `tokens` all that were written.
const NO_STEPS = { kept: 0, guessed: 0, tokens: 0, steps: 0 };

function tallyOf(steps) {
  return { kept: sum(steps.map((step) => step.num_accepted)), guessed: sum(steps.map(numDrafted)),
    tokens: sum(steps.map((step) => step.token_ids.length)), steps: steps.length };
}

function added(one, other) {
  return Object.fromEntries(Object.keys(NO_STEPS).map((name) => [name, one[name] + other[name]]));
}

// The drafters that have tables, each at the length that is its fastest in the whole race: drafter -> k.
function bestLengths(whatIf) {
  const best = new Map();
  for (const each of whatIf.all()) if (!(best.get(each.drafter)?.seconds <= each.seconds)) best.set(each.drafter, each);
  return new Map([...best].map(([drafter, { k }]) => [drafter, k]));
}
