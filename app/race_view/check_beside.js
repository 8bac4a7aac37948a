// What may stand beside a race in its recording, from a stranger: tables of drafts with margins, costs and oracles, what
// the target might have said at each row, promises, what memory drafters take.
// Twin of engine/recordings/beside.py and candidates.py; compared by
// test_a_broken_file_gives_one_sentence_and_changes_nothing.

const CheckBeside = (() => {
const MAX_K = 63, MAX_CANDIDATES = 16, MAX_SEEDS = 8, TOLERANCE = 0.01;
const { MAX_SECONDS, MAX_TOKEN_ID, MAX_WIDTH, Unusable, shown, shape, isCount, shortText, count, number, time, ifThere,
  list, fields } = Shapes;
const namesOf = (value, where) =>
  { fields({})(value, where); Object.values(value).forEach((item) => shortText(item, `${where}[]`)); };
const draft = shape(`a list of at most ${MAX_K} token ids`, (value) => Array.isArray(value) && value.length <= MAX_K &&
  value.every((id) => isCount(id) && id <= MAX_TOKEN_ID));
const costs = shape(`a list of 1 to ${MAX_WIDTH} times in seconds that never fall`, (value) => Array.isArray(value) &&
  value.length >= 1 && value.length <= MAX_WIDTH && value.every((seconds, i) => typeof seconds === "number" &&
  seconds >= (i ? value[i - 1] : 0) && seconds <= MAX_SECONDS));
const ROWS = list(list(fields({ ids: list(count), logits: list(number), log_z: number,
  noise: ifThere(list(list(number))) })));
const BESIDE = { tables: ifThere(fields({})), table_pieces: ifThere(namesOf), table_margins: ifThere(fields({})),
  oracles: ifThere(fields({})), costs: ifThere(fields({ verify_s: costs, draft_s: fields({}) })),
  candidates: ifThere(fields({ seeds: list(count), pieces: namesOf, lanes: fields({}) })), promises: ifThere(namesOf),
  drafter_bytes: ifThere(fields({})) };
const isClose = (a, b) => Math.abs(a - b) <= 1e-6 * Math.max(1, b);
const sameSizes = (lists, sizes) => lists.length === sizes.length && lists.every((each, i) => each.length === sizes[i]);

// Tables, candidates and promises speak of tokens and lanes that are there; costs are of the tables, oracles of lanes
// and of the seconds that these took. Twin of engine/recordings/beside.py.
function checkBeside({ tables = {}, table_margins: margins = {}, costs: { verify_s: verifyS, draft_s: draftS } = {},
  oracles = {}, candidates, promises = {}, drafter_bytes: drafterBytes = {} }, lanes) {
  const longest = Math.max(...[...lanes.values()].map((lane) => lane.ids.length));
  for (const [name, drafts] of Object.entries(tables)) {
    list(draft)(drafts, `the table of ${shown(name)}`);
    if (drafts.length > longest)
      throw new Unusable(`the table of ${shown(name)} has ${drafts.length} drafts, but no lane committed more than `
        + `${longest} tokens`);
  }
  for (const [name, rows] of Object.entries(margins)) {
    list(list(number))(rows, `the margins of the table of ${shown(name)}`);
    if (!Object.hasOwn(tables, name) || !sameSizes(rows, tables[name].map((drafted) => drafted.length)))
      throw new Unusable(`the margins of the table of ${shown(name)} are not one for each token of its drafts`);
  }
  for (const name of verifyS === undefined ? [] : new Set([...Object.keys(draftS), ...Object.keys(tables)])) {
    if (!Object.hasOwn(draftS, name) || !Object.hasOwn(tables, name))
      throw new Unusable(`costs and tables must be of the same drafters; only one of them has ${shown(name)}`);
    costs(draftS[name], `the costs of ${shown(name)}`);
    const longest = Math.max(0, ...tables[name].map((drafts) => drafts.length));
    if (draftS[name].length !== verifyS.length || longest >= verifyS.length)
      throw new Unusable(`the costs of ${shown(name)} do not fit its longest draft and those of steps`);
  }
  for (const [name, oracle] of Object.entries(oracles)) {
    const which = `the oracle of lane ${shown(name)}`;
    if (!lanes.has(name)) throw new Unusable(`${which} is of none that the race has`);
    fields({ seconds: time, share: number })(oracle, which);
    if (!isClose(oracle.seconds, oracle.share * lanes.get(name).clock))
      throw new Unusable(`${which} took ${oracle.seconds} seconds, which is not its share of the lane's own`);
  }
  if (candidates) checkCandidates(candidates, lanes);
  for (const [name, taken] of Object.entries(drafterBytes)) {
    if (!lanes.has(name)) throw new Unusable(`it has the bytes of lane ${shown(name)}, which the race does not have`);
    fields({ weights: count, cache_per_token: count })(taken, `the bytes of lane ${shown(name)}`);
  }
  for (const name of Object.keys(promises))
    if (!lanes.has(name)) throw new Unusable(`it has a promise of lane ${shown(name)}, which the race does not have`);
}

// A row for each row of a step, tokens by falling logit, chances that sum to at most 1, and under every noise the
// committed token the best of its row.
function checkCandidates({ seeds, lanes: found }, lanes) {
  if (seeds.length > MAX_SEEDS)
    throw new Unusable(`the candidates are of ${seeds.length} seeds; at most ${MAX_SEEDS} can be shown`);
  for (const [name, steps] of Object.entries(found)) {
    if (!lanes.has(name)) throw new Unusable(`there are candidates of lane ${shown(name)}, which the race does not have`);
    const which = `the candidates of lane ${shown(name)}`, raced = lanes.get(name).steps;
    ROWS(steps, which);
    if (!sameSizes(steps, raced.map((step) => (step.num_drafted ?? step.drafted.length) + 1)))
      throw new Unusable(`${which} do not have a row for each row of each step`);
    steps.forEach((rows, i) => rows.forEach((row, r) =>
      checkRow(`${which} at row ${r} of step ${i}`, row, raced[i].token_ids[r], seeds.length)));
  }
}

function checkRow(which, { ids, logits, log_z: logZ, noise }, committed, numSeeds) {
  if (ids.length < 1 || ids.length > MAX_CANDIDATES || new Set(ids).size !== ids.length || logits.length !== ids.length)
    throw new Unusable(`${which} are ${ids.length} ids and ${logits.length} logits; 1 to ${MAX_CANDIDATES}, each once`);
  if (logits.some((logit, i) => i && logit > logits[i - 1])) throw new Unusable(`${which} do not stand by falling logit`);
  if (logits.reduce((total, logit) => total + Math.exp(logit - logZ), 0) > 1 + TOLERANCE)
    throw new Unusable(`${which} have chances that sum to more than 1`);
  if (committed !== undefined && !ids.includes(committed))
    throw new Unusable(`${which} lack the token that was committed there`);
  if (noise === undefined) return;
  if (noise.length !== numSeeds || !numSeeds || committed === undefined || noise.some((each) => each.length !== ids.length))
    throw new Unusable(`${which} have noise that is not of its tokens and the ${numSeeds} seeds`);
  const scores = logits.map((logit, i) => logit + noise[0][i]);
  if (Math.max(...scores) - scores[ids.indexOf(committed)] > TOLERANCE)
    throw new Unusable(`${which} say that another token would have been chosen than the one that was`);
}

return { BESIDE, checkBeside, isClose, namesOf };
})();
