// The same dice: what one place of the text was chosen by, read from each lane's own record and shown side by side. A
// score (logit) for every likely token, and the noise that the place has under a seed: the largest sum is chosen.

const ROUNDING = 1e-3;        // numbers are recorded with four digits
const LEAST_SPAN = 10;        // of the bars, in logits: the dice alone would seem to be all
const DICE_WORDS = "Gumbel noise: a number for every token, drawn from the seed, the place in the text and the token. "
  + "To choose the largest sum of logit and noise is to draw by the chances.";

const digits = (value) => (Math.abs(value) >= 1e6 ? value.toPrecision(3) : value.toFixed(4));

// What one lane's record says of a place: {step, id, checksum, scores: [{id, text, logit, noise, chance, sum}], wins};
// null where it says nothing. id: of the token that was written there; die: which of the recorded seeds; wins: the
// score that is chosen under it; noise is 0 where there are no dice.
function diceOf(walk, lane, position, die) {
  const found = walk.at(lane, position);
  if (!found) return null;
  const { ids, logits, log_z: logZ, noise } = found.row;
  const scores = ids.map((id, i) => {
    const logit = logits[i], added = walk.rejects ? 0 : noise?.[die]?.[i] ?? 0;
    return { id, text: walk.text(id), logit, noise: added, chance: Math.exp(logit - logZ), sum: logit + added };
  });
  const best = scores.reduce((one, other) => (other.sum > one.sum ? other : one));
  const written = scores.find(({ id }) => id === found.id), close = written && best.sum - written.sum < ROUNDING;
  return { step: found.step, id: found.id, checksum: found.step.checksums[found.r], scores,
    wins: die === 0 && close ? written : best };
}

// The first number in which two lanes' records of a place differ, in words; "" where all that both have are equal.
function diceDiffer(left, right) {
  for (const one of left.scores) {
    const other = right.scores.find(({ id }) => id === one.id);
    for (const [key, name] of [["logit", "score"], ["noise", "noise"], ["chance", "chance"]])
      if (other && one[key] !== other[key])
        return `The ${name} of ${quoted(one.text)} is ${digits(one[key])} in the plain lane, ${digits(other[key])} `
          + "in the other.";
  }
  if (left.checksum !== right.checksum) return "The checksums of the scores of all tokens are not equal.";
  return left.wins.id === right.wins.id ? "" :
    `${quoted(left.wins.text)} wins in the plain lane and ${quoted(right.wins.text)} in the other.`;
}

// The place of the first token in which the texts of the two lanes differ; null where none does.
function partsAt(walk) {
  const [one, other] = [walk.plain, walk.lane].map((lane) => lane?.steps.flatMap((step) => step.token_ids) ?? []);
  const place = one.findIndex((id, i) => i < other.length && id !== other[i]);
  return place < 0 ? null : place;
}

// What the two records of a place say.
function diceSay(walk, position, left, right, die) {
  const here = `Token ${position + 1} of the text`, parts = partsAt(walk), differ = diceDiffer(left, right);
  const audited = left.checksum === undefined ? "" : ", and so is the checksum of the scores of all tokens";
  if (parts !== null && position > parts)
    return `${here}: the texts have parted before, at token ${parts + 1}, so the model was asked two different things.`;
  if (walk.rejects) return drawsSay(walk, here, left, right, audited);
  if (differ) return `${here}: the records of the two lanes differ. ${differ}`;
  const sums = `${digits(left.wins.sum)} in the plain lane, ${digits(right.wins.sum)} in the other`;
  if (walk.temperature === 0)
    return `${here}. No dice at temperature 0: the largest score is chosen. The scores are equal in both lanes`
      + `${audited}. So both choose ${quoted(left.wins.text)}: ${sums}.`;
  const equal = `${here}: the scores are equal in both lanes${audited}. The dice are equal too: they are of the place, `
    + "whoever guessed there.";
  const same = left.wins.id === left.id;
  return die === 0 ? `${equal} So both choose ${quoted(left.wins.text)}: ${sums}.` :
    `${here}, with the dice of seed ${walk.candidates.seeds[die]}: both lanes would have chosen `
      + `${same ? "the same token again" : `another token than ${quoted(walk.text(left.id))}, and both the same one`}, `
      + `${quoted(left.wins.text)}: ${sums}.`;
}

// Under rejection: the odds are the same, the draws are not.
function drawsSay(walk, here, left, right, audited) {
  const chances = diceDiffer({ ...left, wins: right.wins }, right);
  if (chances) return `${here}: the records of the two lanes differ. ${chances}`;
  const drawn = ({ id, scores }) =>
    `${quoted(walk.text(id))} (${chanceWords(scores.find((each) => each.id === id)?.chance ?? 0)})`;
  const same = `${here}: what stands before it is the same, so the chances are equal in both lanes${audited}.`;
  return left.id === right.id ? `${same} Both draws gave ${drawn(left)}.` :
    `${same} Only the draws differ: ${drawn(left)} in the plain lane, ${drawn(right)} in the other. Here the texts `
      + "part.";
}

// A lane's scores as bars: the score, and on top (or cut off from it, where it is negative) the noise. Under rejection,
// where each lane draws for itself: the chances.
function diceNodes(walk, name, found, low, high) {
  const node = make("section", "pf-dice-lane"), list = make("ol", "pf-dice-scores"), { rejects, temperature } = walk;
  const share = (value) => `${(100 * value / (high - low)).toFixed(2)}%`;
  for (const { id, text, logit, noise, sum: total, chance } of found.scores) {
    const row = make("li", "pf-dice-score"), bar = make("span", "pf-dice-bar"), solid = make("span", "pf-dice-logit");
    const chosen = id === (rejects ? found.id : found.wins.id), from = rejects ? chance : Math.min(logit, total);
    row.classList.toggle("pf-dice-wins", chosen);
    row.dataset.tokenId = id;
    solid.style.width = share(from - low);
    bar.append(solid);
    if (!rejects && noise !== 0) {
      const added = make("span", `pf-dice-noise${noise < 0 ? " pf-dice-less" : ""}`);
      added.style.left = share(from - low);
      added.style.width = share(Math.abs(noise));
      bar.append(added);
    }
    bar.setAttribute("aria-hidden", "true");
    const numbers = rejects ? chanceWords(chance) : temperature === 0 ? digits(logit) :
      `${digits(logit)} ${noise < 0 ? "\u2212" : "+"} ${digits(Math.abs(noise))} = ${digits(total)}`;
    row.append(wordNode(text), bar, make("span", "pf-dice-numbers pf-num", numbers),
      make("span", "pf-dice-end", chosen ? (rejects ? "drawn" : "wins") : ""));
    list.append(row);
  }
  node.append(make("h5", "pf-dice-name", `${name}, step ${found.step.index + 1}`), list);
  return node;
}

function seedButtons(seeds, die, choose) {
  const choice = make("div", "pf-dice-seeds");
  choice.setAttribute("role", "group");
  choice.setAttribute("aria-label", "Seed of the dice");
  choice.append(make("span", "", "Dice of"), ...seeds.map((value, i) => {
    const button = make("button", "pf-button", `seed ${value}${i ? "" : " (this race)"}`);
    button.type = "button";
    button.dataset.die = i;
    button.setAttribute("aria-pressed", String(i === die));
    button.addEventListener("click", () => choose(i));
    return button;
  }));
  return choice;
}

// The section of a place: the sentence, the seeds, both lanes. titles: of the plain lane and this one; die: which
// of the seeds; choose: called with another.
function diceSection(walk, titles, position, die, choose) {
  const [left, right] = [walk.plain, walk.lane].map((lane) => diceOf(walk, lane, position, die));
  if (!left || !right)
    return [make("p", "pf-dice-says", "What both lanes chose from here is not in the recording of both.")];
  const parted = (partsAt(walk) ?? Infinity) < position, words = make("p", "pf-dice-says");
  write(words, diceSay(walk, position, left, right, die));
  words.classList.toggle("pf-dice-odd", !parted && !walk.rejects && diceDiffer(left, right) !== "");
  const all = [left, right].flatMap(({ scores }) => scores), box = make("div", "pf-dice-box");
  const values = all.flatMap(({ chance, logit, sum: total }) => (walk.rejects ? [chance, 0] : [logit, total]));
  const high = Math.max(...values), least = Math.min(...values);
  const low = walk.rejects ? 0 : Math.min(least - 0.08 * (high - least), high - LEAST_SPAN);
  box.append(...[left, right].map((found, i) => diceNodes(walk, titles[i], found, low, high)));
  const note = make("p", "pf-note", walk.rejects ? "The chances of the likely tokens, in each lane's own record." :
    `Bars begin at ${low.toFixed(1)}. Solid: the score (logit)${walk.temperature > 0 ?
      " at this temperature; striped: what the dice (Gumbel noise) add to it, or take from it" : ""}.`);
  if (walk.temperature > 0) note.title = DICE_WORDS;
  const rolls = !walk.rejects && walk.candidates.seeds.length > 1;
  return [words, ...(rolls ? [seedButtons(walk.candidates.seeds, die, choose)] : []), box, note];
}
