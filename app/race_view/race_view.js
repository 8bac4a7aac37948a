// The component: frames in, the board out. `element`, `props` and `watch` are gr.HTML's; a plain page can give the same
// (see tests/browser/test_race_view.py).

const root = element.querySelector(".pf") ?? element;
const board = new Board(root);
const { refs } = board;
const views = { left: new LaneView(refs.leftText), right: new LaneView(refs.rightText) };
const chart = new Chart(refs.chart);
const still = window.matchMedia("(prefers-reduced-motion: reduce)");
const AFTER_RACE_MS = 1500;
const NUMBERS_EVERY_MS = 100;
const OVER = ["finished", "stopped", "failed"];
const WORDS = { idle: "Ready.", preparing: "Preparing.", running: "The race is on.",
  finished: "The race is over.", stopped: "The race was stopped.", failed: "The race failed." };

let S;                      // all state of the race on screen
let served = null;          // id of the server's race, also while a file is on screen
let queued = 0, numbersAt = 0, later = 0;
const replay = new Replay(() => schedule(), () => { controls(); schedule(); });
const popover = new Popover(root, refs.pop, (node) =>
  S.race.lane(node.dataset.lane)?.steps.find((step) => step.index === Number(node.dataset.step)));

function clear(id, seq = -1) {
  skipOpening();
  endStory();
  clearTimeout(later);
  replay.pause();
  popover.close();
  Object.values(views).forEach((view) => view.clear());
  chart.clear();
  S = {
    // where it comes from: the server's id of the race, or a file
    id, fromFile: false, name: "",
    // the last frame: its number, how many were lost before it, and what it said of the race
    seq, holes: 0, state: "idle", status: null, ribbon: "",
    // what happened: the race's header, and its events by lane
    header: null, race: new Race(),
    // the server's numbers, also those shown now
    metrics: null, speedup: null, shown: null,
    // the whole race once it is over: as an object, and as the text to save; whether the machine was disturbed
    recording: null, raw: null, disturbed: "",
    // by tab, what its figures were asked for as
    asked: {},
    // the race at another length: what tells it (undefined: not asked yet), the race as it was, whether it is shown
    whatIf: undefined, raced: null, told: false, besideCame: false, timed: false,
    // of a recorded race that was run again: what became of its tokens
    again: "",
    // the screen: lanes left and right, the first lane of each role, live or a replay, whether it has played by
    // itself, whether both texts have been whole since, sides whose end is marked
    sides: sides([]), first: firstByRole([]), live: true, byItself: false, met: false, marked: new Set(),
  };
  replay.load(0, [0]);
  board.alert("");
  board.title("", null);
  board.names(null, S.sides, S.first);
  board.verdict(null, null, S.sides);
  board.facts(null);
  if (root.dataset.tab === "whatif") openWhatIf();
  forgetFigures();
  controls();
  schedule();
}

// One frame of the protocol, as its JSON text.
function onFrame(source) {
  let frame;
  try { frame = JSON.parse(source); } catch { frame = null; }
  if (frame === null || typeof frame !== "object" || typeof frame.seq !== "number")
    return board.alert("The page received something it cannot read; reload it.");
  if (frame.ribbon?.includes("RECORDED")) story.source ??= source;
  if (frame.race === served && S.fromFile) return undefined;
  if (frame.state === "finished" && !frame.recording && frame.race !== S.id) return undefined;   // what came after it
  if (served === null && frame.ribbon?.includes("RECORDED") && isLinked()) {
    served = frame.race;
    return board.title("From a link, not raced yet", null);
  }
  keepRace(frame);
  const seq = waiting?.race === frame.race ? waiting.seq : -1;
  if (waits(frame)) return undefined;
  served = frame.race;
  if (frame.race !== S.id) clear(frame.race, seq);
  if (frame.seq <= S.seq) return undefined;
  if (frame.seq !== S.seq + 1) S.holes += 1;
  const before = S.state, first = S.race.numEvents === 0;
  Object.assign(S, { seq: frame.seq, state: frame.state, status: frame.status ?? null, ribbon: frame.ribbon ?? "" });
  if (frame.name) S.name = frame.name;
  if (frame.again) S.again = frame.again;
  if (frame.header) setHeader(frame.header);
  if (frame.header && !S.ribbon.includes("RECORDED")) keepSettings(racedSettings());
  if (!frame.recording) (frame.events ?? []).forEach((event) => S.race.add(event));
  if (frame.metrics) S.metrics = frame.metrics;
  if (frame.speedup !== undefined && frame.speedup !== null) S.speedup = frame.speedup;
  if (frame.recording) setRecording(frame.recording, rawMember(source));
  if (frame.beside && S.recording) addBeside(frame.beside, Check.rawMember(source, "beside"));
  if (OVER.includes(frame.state) && S.live) over(frame.state === "finished", first ? 300 : AFTER_RACE_MS);
  if (before !== frame.state) board.announce(announcement());
  if (before !== frame.state && frame.state === "running") intoView();
  controls();
  schedule();
  return undefined;
}

function rawMember(source) { return Check.rawMember(source, "recording"); }

function setHeader(header) {
  S.header = header;
  const lanes = header.spec?.lanes ?? [];
  Object.assign(S, { sides: sides(lanes), first: firstByRole(lanes) });
  board.title(S.name || startOf(header.prompt?.text), header);
  board.names(header, S.sides, S.first);
  board.facts(header);
}

// The whole race: what was missed on the way is in it.
function setRecording(recording, raw) {
  // of servers the steps are known at the end alone
  const missed = S.holes > 0 || recording.events.length < S.race.numEvents
    || recording.spec.lanes.some(({ name }) => isOnServer(recording, name));
  if (missed) Object.values(views).forEach((view) => view.clear());
  if (missed) S.marked.clear();
  if (missed) chart.clear();
  S.race = new Race();
  recording.events.forEach((event) => S.race.add(event));
  Object.assign(S, { recording, raw, holes: 0, disturbed: disturbance(S.race) });
  setHeader(recording);
  askForFigures();
  if (root.dataset.tab === "whatif") openWhatIf();
}

// Of a recorded race it is said when both texts are whole on the screen, as in the race itself.
function showVerdict() {
  const waits = (opening.act && !opening.met)
    || (!S.live && (replay.playing || !S.met) && S.ribbon.includes("RECORDED"));
  const [of, plain] = waits ? [null, null] : [verdictOn(S.sides[1]), verdictOn(S.first.plain)];
  board.verdict(of, plain, S.sides, S.again);
  if (S.told) board.sameAtEveryLength();
}

function titles() { return S.sides.map((name) => laneTitle(name, S.first)); }

// The verdict on a lane, null where there is none.
function verdictOn(name) {
  const verdicts = S.recording?.verdicts ?? {};
  return Object.hasOwn(verdicts, name) ? verdicts[name] : null;
}

// From now on the lanes stand where the replay's clock stands. A finished race plays once by itself.
function over(playIt, wait) {
  S.live = false;
  replay.load(S.race.duration(S.sides), S.race.times(S.sides));
  if (opens()) return playOpening();
  if (playIt && S.recording && !still.matches) later = setTimeout(playByItself, wait);
  return undefined;
}

function playByItself(again = false) {
  if (document.hidden) return document.addEventListener("visibilitychange", () => playByItself(), { once: true });
  if (S.live || (again !== true && (S.byItself || replay.playing)) || still.matches) return undefined;
  S.byItself = true;
  S.met = false;
  replay.setSpeed(1);
  replay.seek(0);
  return replay.play();
}

// The texts are what a race is watched for: where they are out of sight, the page moves so that the race begins at its
// top.
function intoView() {
  if (refs.leftText.getBoundingClientRect().bottom > window.innerHeight)
    root.scrollIntoView({ block: "start", behavior: still.matches ? "auto" : "smooth" });
}

function mine() {           // the visitor took the controls: nothing plays by itself any more
  clearTimeout(later);
  S.byItself = true;
}

function schedule() {
  if (!queued) queued = requestAnimationFrame(() => { queued = 0; paint(); });
}

function paint() {
  const { race, live } = S, [left, right] = S.sides.map((name) => race.lane(name)), plain = race.lane(S.first.plain);
  const lanes = { left, right, plain: plain === left ? null : plain };
  const t = live ? race.duration(S.sides) : replay.t;
  const counts = {};
  for (const [side, lane] of Object.entries(lanes))
    counts[side] = lane ? countNow(lane, t) : 0;
  const changed = Object.entries(views).filter(([side, view]) => view.show(lanes[side]?.steps ?? [], counts[side]));
  for (const [side, view] of Object.entries(views)) {
    if (S.marked.has(side) || !lanes[side]?.finished || view.nodes.length < lanes[side].steps.length) continue;
    S.marked.add(side);
    view.markUnseen(unseenAtTheEnd(lanes[side], S.header?.spec?.params?.stop ?? []));
  }
  const tokens = Object.fromEntries(Object.entries(lanes).map(([side, lane]) =>
    [side, lane ? lane.tokens[counts[side]] : side === "plain" ? null : 0]));
  const atLimit = Object.fromEntries(["left", "right"].map((side) =>
    [side, lanes[side]?.finished?.reason === "length" && counts[side] === lanes[side].steps.length]));
  const total = trackLength(race.lanes.size > 3 ? Object.fromEntries(race.lanes) : lanes);
  board.track(tokens, total, places(lanes, counts), atLimit);
  drawMore(t, total);
  const [leftTitle, rightTitle] = titles();
  chart.draw(lanes, counts, { left: leftTitle, right: rightTitle, plain: ALONE }, t, !live);
  if (!live) {
    refs.scrub.value = String(Math.round(1000 * t));
    refs.scrub.setAttribute("aria-valuetext", `${seconds(t)} of ${seconds(replay.duration)} seconds`);
    write(refs.deckTime, `${seconds(t)} / ${seconds(replay.duration)} s`);
  }
  else write(refs.deckTime, `${seconds(t)} s`);
  if (!live && !S.met && t >= replay.duration) { S.met = true; showVerdict(); }
  const now = performance.now(), settled = live || !replay.playing;
  if (settled || now - numbersAt > NUMBERS_EVERY_MS || t >= replay.duration) {
    numbersAt = now;
    numbers(lanes, counts, tokens, t);
  }
  showStatus();
  changed.forEach(([, view]) => view.follow());      // last: it asks for the layout, which everything above has changed
  root.dispatchEvent(new CustomEvent("photofinish:painted", { bubbles: true, detail: { race: S.id, seq: S.seq, t } }));
}

// How many steps of a lane are shown: of the plain lane that is not on the board too, all once the two are over.
function countNow(lane, t) { return S.live || t >= replay.duration ? lane.steps.length : lane.countAt(t); }

// While a race runs the server counts; at any other lane time the same formulas are taken here, up to that time.
function numbers(lanes, counts, tokens, t) {
  const { race, live } = S, whole = !live && t >= replay.duration;
  let metrics = S.metrics, speedup = S.speedup;
  const first = S.sides[1] === sides(S.header?.spec?.lanes ?? [])[1];
  if (!first) speedup = raceSpeedup(race, S.first, lanes.right, (lane) => countNow(lane, t));
  if (!live && !(whole && S.metrics)) {
    metrics = Object.fromEntries([...race.lanes.values()].map((lane) => [lane.name, metricsOf(lane, countNow(lane, t))]));
    speedup = raceSpeedup(race, S.first, lanes.right, (lane) => countNow(lane, t));
  }
  const done = (lane) => (lane ? lane.steps.slice(0, countNow(lane, t)) : []);
  const divisor = plainIsFaster(metrics, S.sides, S.first) ? lanes.plain : lanes.left;
  const noise = whole && !S.told && !isElsewhere(S.header, S.sides[1]) ? ratioNoise(done(divisor), done(lanes.right)) : null;
  const [leftTitle, rightTitle] = titles();
  const judged = !live || counts.right % 8 === 0;        // a race that runs shares its cores with this page
  const written = live ? done(lanes.right) : lanes.right?.steps ?? [];
  const loop = judged ? loopSentence(written.flatMap((step) => step.token_ids)) : S.shown?.loop ?? "";
  S.shown = { metrics, speedup, noise, loop };
  board.figures(metrics, whole ? speedup : null, S.sides, S.first, noise, !whole && S.timed);
  S.timed ||= whole;
  board.cautions(S.disturbed, loop);
  const spec = S.header?.spec?.lanes?.find((lane) => lane.name === S.sides[1]);
  board.acceptance(metrics?.[S.sides[1]], spec ? spec.drafter !== "none" : false, whole,
    spec?.drafter === "server");
  write(refs.chartWords, tokens.right ?
    `At ${seconds(t)} s the lane ${rightTitle} had written ${plural(tokens.right, "token")} `
      + `and the lane ${leftTitle} ${tokens.left}. Steeper is faster; a jump is a guess that was kept.`
      : "Steeper is faster; a jump is a guess that was kept.");
}

// The finish: as many tokens as the longest lane wrote, or may write while that is open.
function trackLength(lanes) {
  const all = Object.values(lanes).filter(Boolean);
  const written = all.reduce((most, lane) => Math.max(most, lane.tokens[lane.steps.length]), 0);
  return S.live && !all.every((lane) => lane.ended) ?
    Math.max(written, S.header?.spec?.params?.max_new_tokens ?? 0) : written;
}

function places(lanes, counts) {
  const done = (side) => lanes[side]?.finished && counts[side] === lanes[side].steps.length;
  const words = (side, other) => {
    if (lanes[side]?.failed && counts[side] === lanes[side].steps.length) return "failed";
    if (!done(side)) return "";
    const behind = lanes[other]?.finished && !isElsewhere(S.header, S.sides[1]) ? lanes[side].clock - lanes[other].clock : 0;
    return behind > 0 && done(other) ?
      `finish ${seconds(lanes[side].clock)} s, +${seconds(behind)}` : `finish ${seconds(lanes[side].clock)} s`;
  };
  for (const side of ["left", "right"]) {
    const message = lanes[side]?.failed && counts[side] === lanes[side].steps.length ? lanes[side].failed.message : "";
    refs[`${side}Failed`].hidden = !message;
    write(refs[`${side}Failed`], message ? `This lane failed: ${oneLine(message)}` : "");
  }
  return { left: words("left", "right"), right: words("right", "left") };
}

function showStatus() {
  const { speed: times } = replay, speed = times === 1 ? "at real speed" :
    times < 1 ? `at 1/${1 / times} of real speed` : `at ${times} times real speed`;
  const source = S.fromFile || S.ribbon.includes("RECORDED") ? "A recorded race" : "The race just run";
  root.dataset.mode = replay.playing ? "replay" : S.live ? "live" : "still";
  const said = S.state === "preparing" ? "" : S.status?.text;
  const text = replay.playing ? `${source}, replayed ${speed}.` : said || WORDS[S.state] || "";
  board.status(S.state, S.holes && S.live ? `${text} Some updates were lost on the way; the end brings them.` : text);
  showCard();
  const about = [[S.fromFile, "RECORDED"], [S.header?.synthetic?.length, "SYNTHETIC"],
    [RANDOM_WEIGHTS.test(S.header?.model?.name), "RANDOM"], [S.told, "COMPUTED"]];
  board.ribbon([...new Set([...S.ribbon.split(/[\s,+]+/).filter(Boolean),
    ...about.flatMap(([holds, word]) => (holds ? [word] : []))])]);
}

function announcement() {
  const words = S.status?.text || WORDS[S.state] || "";
  if (S.state !== "finished") return oneLine(words);
  const verdict = VERDICTS[verdictOn(S.sides[1])?.kind]?.[1] ?? "";
  const ratio = typeof S.speedup === "number" ? `${refs.ratio.textContent} ${refs.ratioWords.textContent}.` : "";
  return `The race is over. ${ratio} ${verdict ? `Verdict: ${verdict}.` : ""} ${oneLine(S.again)}`;
}

function controls() {
  offer();
  showVerdict();
  const ready = !S.live && replay.duration > 0;
  for (const name of ["play", "back", "next", "scrub"]) refs[name].disabled = !ready;
  refs.save.disabled = !S.raw;
  write(refs.liveHere, S.fromFile ? "Run it on yours" : "Race it live here");
  refs.open.disabled = waiting !== null || RACING.includes(S.state);
  refs.scrub.max = String(Math.ceil(1000 * replay.duration));
  write(refs.play, replay.playing ? "Pause" : ready && replay.t >= replay.duration ? "Play again" : "Play");

  root.querySelectorAll("[data-speed]").forEach((node) =>
    node.setAttribute("aria-pressed", String(Number(node.dataset.speed) === replay.speed)));
}
