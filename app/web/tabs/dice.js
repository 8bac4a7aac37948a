// How one token was chosen, from each lane's own record, side by side: a score (logit) and the seed's noise for every
// likely token; the largest sum wins.

import { make, makeUnheard } from "../base/text.js";
import { chanceWords, quoted } from "./step.js";
import { wordNode } from "./step_view.js";

const ROUNDING = 1e-3;        // numbers are recorded with four digits
const LEAST_SPAN = 10;        // of the bars, in logits, or the dice would seem to be all
const DICE_WORDS = "Gumbel noise: one random number per token, from the seed, the position and the token. Picking "
  + "the largest sum of logit and noise is the same as sampling.";

const digits = (value) => (Math.abs(value) >= 1e6 ? value.toPrecision(3) : value.toFixed(4));

// One lane's record of a position: {step, id, checksum, scores: [{id, text, logit, noise, chance, sum}], wins}, or
// null. id: the token written there; wins: the score that wins; noise: 0 without dice.
function diceOf(walk, lane, position) {
  const entry = walk.at(lane, position);
  if (!entry) return null;
  const { ids, logits, log_z: logZ, noise } = entry.row;
  const scores = ids.map((id, i) => {
    const logit = logits[i], added = walk.rejects ? 0 : noise?.[0]?.[i] ?? 0;
    return { id, text: walk.text(id), logit, noise: added, chance: Math.exp(logit - logZ), sum: logit + added };
  });
  const best = scores.reduce((top, score) => (score.sum > top.sum ? score : top));
  const written = scores.find(({ id }) => id === entry.id), close = written && best.sum - written.sum < ROUNDING;
  return { step: entry.step, id: entry.id, checksum: entry.step.checksums[entry.r], scores,
    wins: close ? written : best };
}

// The first difference between two lanes' records of a position, in words; "" if there is none.
function diceDiffer(left, right) {
  for (const score of left.scores) {
    const twin = right.scores.find(({ id }) => id === score.id);
    for (const [key, name] of [["logit", "score"], ["noise", "noise"], ["chance", "probability"]])
      if (twin && score[key] !== twin[key])
        return `The ${name} of ${quoted(score.text)} is ${digits(score[key])} in the plain lane, ${digits(twin[key])} `
          + "in the speculative lane.";
  }
  if (left.checksum !== right.checksum) return "The checksums of all scores differ.";
  return left.wins.id === right.wins.id ? "" :
    `${quoted(left.wins.text)} wins in the plain lane and ${quoted(right.wins.text)} in the speculative lane.`;
}

// The position of the first token that differs between the lanes, or null.
export function partsAt(walk) {
  const [plain, guessed] = [walk.plain, walk.lane].map((lane) => lane?.steps.flatMap((step) => step.token_ids) ?? []);
  const place = plain.findIndex((id, i) => i < guessed.length && id !== guessed[i]);
  return place < 0 ? null : place;
}

// The sentence on both records of a position.
function diceSay(walk, position, left, right) {
  const here = `Token ${position + 1} of the text`, parts = partsAt(walk), differ = diceDiffer(left, right);
  const audited = left.checksum === undefined ? "" : ", and so is the checksum of the scores of all tokens";
  if (parts !== null && position > parts)
    return `${here}: the texts already differ from token ${parts + 1} on, so the lanes cannot be compared.`;
  if (walk.rejects) return drawsSay(walk, here, left, right, audited);
  if (differ) return `${here}: the records of the two lanes differ. ${differ}`;
  const equal = walk.temperature === 0 ?
    `. At temperature 0 the largest score wins; no random numbers. The scores are equal in both lanes${audited}.` :
    `: the scores are equal in both lanes${audited}. The random numbers are equal too: they belong to the position, `
      + "whoever guessed.";
  return `${here}${equal} So both choose ${quoted(left.wins.text)}: ${digits(left.wins.sum)} in the plain lane, ${
    digits(right.wins.sum)} in the speculative lane.`;
}

// The same under rejection: equal odds, separate draws.
function drawsSay(walk, here, left, right, audited) {
  const chances = diceDiffer({ ...left, wins: right.wins }, right);
  if (chances) return `${here}: the records of the two lanes differ. ${chances}`;
  const drawn = ({ id, scores }) =>
    `${quoted(walk.text(id))} (${chanceWords(scores.find((score) => score.id === id)?.chance ?? 0)})`;
  const same = `${here}: the text before it is the same, so the probabilities are equal in both lanes${audited}.`;
  return left.id === right.id ? `${same} Both draws gave ${drawn(left)}.` :
    `${same} Only the draws differ: ${drawn(left)} in the plain lane, ${drawn(right)} in the speculative lane. From `
      + "here on the texts differ.";
}

// A lane's scores as bars, with the noise added to or subtracted from each; under rejection, the chances.
function diceNodes(walk, name, dice, low, high) {
  const { rejects, temperature } = walk, share = (value) => `${(100 * value / (high - low)).toFixed(2)}%`;
  const rows = dice.scores.map(({ id, text, logit, noise, sum: total, chance }) => {
    const solid = make("span", "pf-dice-logit"), bar = makeUnheard("span", "pf-dice-bar", solid);
    const chosen = id === (rejects ? dice.id : dice.wins.id), from = rejects ? chance : Math.min(logit, total);
    solid.style.width = share(from - low);
    if (!rejects && noise !== 0) {
      const added = make("span", `pf-dice-noise${noise < 0 ? " pf-dice-less" : ""}`);
      added.style.left = share(from - low);
      added.style.width = share(Math.abs(noise));
      bar.append(added);
    }
    const numbers = rejects ? chanceWords(chance) : temperature === 0 ? digits(logit) :
      `${digits(logit)} ${noise < 0 ? "\u2212" : "+"} ${digits(Math.abs(noise))} = ${digits(total)}`;
    const row = make("li", "pf-dice-score", wordNode(text), bar, make("span", "pf-dice-numbers pf-num", numbers),
      make("span", "pf-dice-end", chosen && (rejects ? "drawn" : "wins")));
    row.classList.toggle("pf-dice-wins", chosen);
    row.dataset.tokenId = id;
    return row;
  });
  return make("section", "pf-dice-lane", make("h5", "pf-dice-name", `${name}, step ${dice.step.index + 1}`),
    make("ol", "pf-dice-scores", ...rows));
}

// Nodes for a position: sentence, both lanes. titles: of both lanes.
export function diceSection(walk, titles, position) {
  const [left, right] = [walk.plain, walk.lane].map((lane) => diceOf(walk, lane, position));
  if (!left || !right) return [make("p", "pf-dice-says", "Not recorded for both lanes at this position.")];
  const parted = (partsAt(walk) ?? Infinity) < position;
  const words = make("p", "pf-dice-says", diceSay(walk, position, left, right));
  words.classList.toggle("pf-dice-odd", !parted && !walk.rejects && diceDiffer(left, right) !== "");
  const all = [left, right].flatMap(({ scores }) => scores);
  const values = all.flatMap(({ chance, logit, sum: total }) => (walk.rejects ? [chance, 0] : [logit, total]));
  const high = Math.max(...values), least = Math.min(...values);
  const low = walk.rejects ? 0 : Math.min(least - 0.08 * (high - least), high - LEAST_SPAN);
  const box = make("div", "pf-dice-box", ...[left, right].map((dice, i) =>
    diceNodes(walk, titles[i], dice, low, high)));
  const note = make("p", "pf-note", walk.rejects ? "Probabilities of the likely tokens, as each lane recorded them." :
    `Bars start at ${low.toFixed(1)}. Solid: the score (logit)${walk.temperature > 0 ?
      " at this temperature. Striped: the random number (Gumbel noise) added to it" : ""}.`);
  if (walk.temperature > 0) note.title = DICE_WORDS;
  return [words, box, note];
}
