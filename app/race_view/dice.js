// The same dice: what one place of the text was chosen by, read from each lane's own record and shown side by side. A
// score (logit) for every likely token, and the noise that the place has under a seed: the largest sum is chosen.

const ROUNDING = 1e-3;        // the noise is recorded with four digits
const DICE_WORDS = "Gumbel noise: a number for every token, drawn from the seed, the place in the text and the token alone. "
  + "Choosing the largest sum of logit and noise is drawing by the chances.";

// One lane's {title, step, id, scores: [{id, text, logit, noise, sum}], wins}, null where its record does not have it.
// die: which of the recorded seeds; noise is 0 where there are no dice.
function diceOf(walk, lane, position, die) {
  const found = walk.at(lane, position);
  if (!found) return null;
  const { ids, logits, log_z: logZ, noise } = found.row;
  const scores = ids.map((id, i) => ({ id, text: walk.text(id), logit: logits[i], noise: noise?.[die]?.[i] ?? 0,
    chance: Math.exp(logits[i] - logZ) })).map((each) => ({ ...each, sum: each.logit + each.noise }));
  const best = scores.reduce((one, other) => (other.sum > one.sum ? other : one));
  const written = scores.find(({ id }) => id === found.id);
  const wins = die === 0 && written && best.sum - written.sum < ROUNDING ? written : best;
  return { step: found.step, id: found.id, checksum: found.step.checksums[found.r], scores, wins };
}

// The first number in which two lanes' records of a place differ, in words; "" where all that both have are equal.
function diceDiffer(left, right) {
  for (const one of left.scores) {
    const other = right.scores.find(({ id }) => id === one.id);
    for (const [key, name] of [["logit", "score"], ["noise", "dice"], ["chance", "chance"]])
      if (other && one[key] !== other[key])
        return `the ${name} of ${quoted(one.text)} is ${digits(one[key])} in one lane and ${digits(other[key])} in the other`;
  }
  if (left.checksum !== right.checksum) return "the checksums of all scores are not equal";
  return "";
}

const digits = (value) => (Math.abs(value) >= 1e6 ? value.toPrecision(3) : value.toFixed(4));

// Where the texts of the two lanes part, null where neither does.
function partsAt(walk) {
  const [one, other] = [walk.plain, walk.lane].map((lane) => lane?.steps.flatMap((step) => step.token_ids) ?? []);
  const place = one.findIndex((id, i) => i < other.length && id !== other[i]);
  return place < 0 ? null : place;
}

// What the two records of a place say, in one or two sentences.
function diceSay(walk, position, left, right, die) {
  const here = `Token ${position + 1} of the text`, seeds = walk.candidates.seeds, parts = partsAt(walk);
  const differ = diceDiffer(left, right), rejection = walk.rule === "rejection";
  const values = (one, other) => `${digits(one.sum)} in the plain lane, ${digits(other.sum)} in the other`;
  if (parts !== null && position > parts)
    return `${here}: the texts have parted before, at token ${parts + 1}, so the model was asked two different questions.`;
  if (differ) return `${here}: the lanes' records differ. ${sentence(differ)}`;
  const audited = left.checksum === undefined ? "" : ", as is the checksum of the scores of all tokens";
  if (rejection) {
    const same = `${here}: what stands before it is the same, so the chances are, number for number${audited}.`;
    return left.id === right.id ? `${same} Both draws gave ${quoted(walk.text(left.id))}.` :
      `${same} Only the draws differ: ${quoted(walk.text(left.id))} (${chanceWords(chanceOf(left))}) in the plain lane, `
        + `${quoted(walk.text(right.id))} (${chanceWords(chanceOf(right))}) in the other. Here the texts part.`;
  }
  const wins = `${quoted(left.wins.text)} has the largest ${walk.temperature > 0 ? "sum" : "score"}: ${values(left.wins, right.wins)}`;
  if (walk.temperature === 0)
    return `${here}. No dice at temperature 0: the largest score is chosen. All scores are equal in both lanes${audited}, so the choice is the same. ${wins}.`;
  const equal = `${here}: all scores are equal in both lanes${audited}, and so are all dice, whether the token was guessed or not.`;
  if (left.wins.id !== right.wins.id) return `${here}: the lanes' records name different winners.`;
  if (die === 0) return `${equal} So the choice is the same. ${wins}.`;
  return `With the dice of seed ${seeds[die]} both lanes would have chosen ${left.wins.id === left.id ? "the same token" :
    `another token than ${quoted(walk.text(left.id))}`}, both the same one: ${wins}.`;
}

const chanceOf = ({ scores, id }) => scores.find((each) => each.id === id)?.chance ?? 0;

// A lane's scores as bars: the score, and on top (or cut off from it, where it is negative) the noise.
function diceNodes(walk, name, found, low, high, isRejection) {
  const node = make("section", "pf-dice-lane"), list = make("ol", "pf-dice-scores");
  const share = (value) => `${(100 * (value - low) / (high - low || 1)).toFixed(2)}%`;
  for (const { id, text, logit, noise, sum: total, chance } of found.scores) {
    const row = make("li", "pf-dice-score"), bar = make("span", "pf-dice-bar"), wins = !isRejection && id === found.wins.id;
    const chosen = isRejection ? id === found.id : wins;
    row.classList.toggle("pf-dice-wins", chosen);
    row.dataset.tokenId = id;
    const [scored, added] = [make("span", "pf-dice-logit"), make("span", "pf-dice-noise")];
    scored.style.width = share(noise < 0 ? total : logit);
    added.style.left = share(Math.min(logit, total));
    added.style.width = `${(100 * Math.abs(noise) / (high - low || 1)).toFixed(2)}%`;
    added.classList.toggle("pf-dice-less", noise < 0);
    bar.append(scored, ...(noise === 0 ? [] : [added]));
    bar.setAttribute("aria-hidden", "true");
    const numbers = isRejection ? chanceWords(chance) : walk.temperature === 0 ? digits(logit) :
      `${digits(logit)} ${noise < 0 ? "\u2212" : "+"} ${digits(Math.abs(noise))} = ${digits(total)}`;
    row.append(putText(make("span", "pf-one-word"), text), bar, make("span", "pf-dice-numbers pf-num", numbers),
      make("span", "pf-dice-end", chosen ? (isRejection ? "drawn" : "wins") : ""));
    list.append(row);
  }
  node.append(make("h5", "pf-dice-name", `${name}, step ${found.step.index + 1}`), list);
  return node;
}

// The whole section of a place: both lanes, the sentence, the seeds to choose from. seed: called with the place of one.
function diceSection(walk, titles, position, die, seed) {
  const rejection = walk.rule === "rejection", box = make("div", "pf-dice-box"), seeds = walk.candidates?.seeds ?? [];
  const [left, right] = [walk.plain, walk.lane].map((lane) => diceOf(walk, lane, position, die));
  const say = (words) => make("p", "pf-dice-says", words);
  if (!left || !right) return [say("Of this place the plain lane's record and this lane's are not both there.")];
  const both = [left, right].flatMap(({ scores }) => scores.flatMap(({ logit, sum: total }) => [logit, total]));
  const top = Math.max(...both), least = Math.min(...both), low = least - 0.08 * (top - least || 1);
  box.append(...[left, right].map((found, i) => diceNodes(walk, titles[i], found, low, top, rejection)));
  const choice = make("div", "pf-dice-seeds");
  choice.setAttribute("role", "group");
  choice.setAttribute("aria-label", "Seed of the dice");
  choice.append(make("span", "", "Dice of"), ...seeds.map((value, i) => {
    const button = make("button", "pf-button", `seed ${value}${i ? "" : " (this race)"}`);
    button.type = "button";
    button.setAttribute("aria-pressed", String(i === die));
    button.addEventListener("click", () => seed(i));
    return button;
  }));
  const words = say(diceSay(walk, position, left, right, die));
  words.classList.toggle("pf-dice-odd", !rejection && (diceDiffer(left, right) !== "" || left.wins.id !== right.wins.id));
  const note = make("p", "pf-note", rejection ? "Chances of the likely tokens." : `Bars begin at ${low.toFixed(1)}. Dark: the score `
    + `(logit)${walk.temperature > 0 ? " at this temperature; striped: what the dice add to it, or take from it" : ""}.`);
  note.title = walk.temperature > 0 ? DICE_WORDS : "";
  return [words, ...(seeds.length ? [choice] : []), box, note];
}
