// A race with more than one lane that guesses: below the two on the board each other lane has a row in the track, and
// all that guess are ranked. A press on a row shows its lane on the right.

const more = { rows: new Map() };

const guessing = () => (S.header?.spec?.lanes ?? []).filter((lane) => lane.role === "speculative");
const shortName = ({ name, drafter, k }) => oneLine(drafter === "server" ? `${name}, on a server` : `${drafter}, ${k === "auto" ? "auto" : `at most ${k}`}`).slice(0, 80);

// Places of lanes by seconds a token, 1 the fastest. Two that cannot be told apart by their noise share a place; one on
// a server beside others that are not has none, and no ratio.
function placesOf(names) {
  const lanes = names.map((name) => S.race.lane(name)).filter((lane) => lane?.finished && lane.steps.length);
  const cost = (lane) => sum(lane.steps.map(stepSeconds)) / lane.tokens.at(-1), places = new Map();
  lanes.sort((a, b) => cost(a) - cost(b)).forEach((lane, i) => {
    const before = lanes[i - 1], noise = before ? ratioNoise(before.steps, lane.steps) : null;
    places.set(lane.name, before && isNoise(cost(lane) / cost(before), noise) ? places.get(before.name) : i + 1);
  });
  return places;
}

// Show this lane where the first one that guesses stands.
function watchLane(name) {
  if (S.told) endWhatIf();
  mine();
  popover.close();
  endStory();
  views.right.clear();
  chart.clear();
  S.marked.delete("right");
  Object.assign(S, { sides: [S.sides[0], name], whatIf: undefined, walk: undefined, asked: {}, timed: false });
  board.names(S.header, S.sides, S.first);
  if (!S.live) {
    const { t, duration } = replay;
    replay.load(S.race.duration(S.sides), S.race.times(S.sides));
    if (t < duration) replay.seek(t);
  }
  askForFigures();
  if (root.dataset.tab === "whatif") openWhatIf();
  board.announce(`On the right: ${shortName(guessing().find((lane) => lane.name === name))}.`);
  controls();
  schedule();
}

function laneRow(name) {
  const row = make("button", "pf-track-row pf-track-more"), rail = make("span", "pf-rail"), run = make("span", "pf-run");
  const [title, count] = [make("span", "pf-track-name"), make("span", "pf-track-count pf-num")];
  row.type = "button";
  rail.append(run);
  row.append(title, rail, count);
  row.addEventListener("click", () => watchLane(name));
  return { row, title, run, count };
}

// The rows of the lanes that are not on the board, at lane time t of a track that ends at `total` tokens.
function drawMore(t, total) {
  const lanes = guessing(), several = lanes.length > 1 && !S.told, others = several ?
    lanes.filter(({ name }) => name !== S.sides[1]) : [];
  refs.track.toggleAttribute("data-more", several);
  for (const [name, { row }] of more.rows) if (!others.some((lane) => lane.name === name)) {
    row.remove();
    more.rows.delete(name);
  }
  if (!several) return;
  const over = !S.live && t >= replay.duration, here = lanes.filter(({ name }) => !isElsewhere(S.header, name));
  const places = over ? placesOf(here.map(({ name }) => name)) : new Map();
  const titled = (lane) => `${places.has(lane.name) ? `${places.get(lane.name)}. ` : ""}${shortName(lane)}`;
  const counted = ({ name }, tokens) => {
    const lane = S.race.lane(name), gain = over && lane?.finished && !isElsewhere(S.header, name) ? raceSpeedup(S.race, S.first, lane, (each) =>
      each.steps.length) : null;
    const icon = over ? VERDICTS[verdictOn(name)?.kind]?.[0] ?? "" : "";
    return `${icon} ${tokens}${gain === null ? "" : `  ${gain.toFixed(2)}\u00d7`}`;
  };
  for (const each of others) {
    if (!more.rows.has(each.name)) {
      more.rows.set(each.name, laneRow(each.name));
      refs.track.append(more.rows.get(each.name).row);
    }
    const { row, title, run, count } = more.rows.get(each.name), lane = S.race.lane(each.name);
    const tokens = lane ? lane.tokens[countNow(lane, t)] : 0;
    write(title, titled(each));
    row.title = `Show this lane on the right. ${guessWords(each)}`;
    run.style.clipPath = `inset(0 ${100 - 100 * (total ? Math.min(1, tokens / total) : 0)}% 0 0)`;
    write(count, counted(each, tokens));
  }
  const shown = lanes.find(({ name }) => name === S.sides[1]), right = S.race.lane(S.sides[1]);
  write(board.rows.right.name, titled(shown));
  write(board.rows.right.count, counted(shown, right ? right.tokens[countNow(right, t)] : 0));
}
