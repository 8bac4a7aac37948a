// Everything the visitor does with a race: replay by mouse and keyboard, saving and opening race files. Then the
// component begins to listen.

function fileName(suffix) {
  const part = (value) => String(value ?? "").replace(/[^A-Za-z0-9.-]+/g, "-").slice(-60);
  return ["photofinish", part(S.header?.model?.name), part(S.header?.created), S.header?.synthetic?.length ?
    "SYNTHETIC" : ""].filter(Boolean).join("_") + `.${suffix}`;
}

function download(blob, suffix) {
  const url = URL.createObjectURL(blob), link = make("a");
  link.href = url;
  link.download = fileName(suffix);
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// A race file's text, shown as a race if it holds; one sentence if not. What was on screen stays then.
function openText(source, name = "the file") {
  let recording;
  try { recording = Check.readRecording(source); } catch (error) {
    if (!(error instanceof Check.Unusable)) throw error;
    return refuse(name, error.message);
  }
  clear(`file:${name}`);
  const state = recording.stopped ? "stopped" : "finished";
  Object.assign(S, { fromFile: true, state,
    status: { text: `${name}, opened from this computer${recording.stopped ? "; the race was stopped" : ""}.`,
    share: null } });
  setRecording(recording, source);
  over(true, 300);
  controls();
  schedule();
  board.announce("A recorded race is open.");
  return true;
}

function refuse(name, why) {
  board.alert(`${oneLine(name).slice(0, 80)} cannot be opened: ${oneLine(why).slice(0, 400)}.`);
  return false;
}

async function openFile(file) {
  if (file.size > Check.MAX_FILE_BYTES)
    return refuse(file.name, `it is larger than ${Check.MAX_FILE_BYTES / 1024 ** 2} MB`);
  let source;
  try { source = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()); } catch {
    return refuse(file.name, "it is not UTF-8 text"); }
  return openText(source, file.name);
}

const SEEK_KEYS = {
  " ": () => replay.toggle(),
  ArrowRight: () => replay.step(1), ArrowUp: () => replay.step(1), ArrowLeft: () => replay.step(-1), ArrowDown: () =>
    replay.step(-1),
  Home: () => { replay.pause(); replay.seek(0); }, End: () => { replay.pause(); replay.seek(replay.duration); },
};

refs.deck.addEventListener("keydown", (event) => {
  const button = event.target.closest("button");
  const act = SEEK_KEYS[event.key];
  if (!act || S.live || event.ctrlKey || event.metaKey || event.altKey || (event.key === " " && button)) return;
  event.preventDefault();
  mine();
  act();
});
refs.play.addEventListener("click", () => { mine(); replay.toggle(); });
refs.back.addEventListener("click", () => { mine(); replay.step(-1); });
refs.next.addEventListener("click", () => { mine(); replay.step(1); });
refs.scrub.addEventListener("input", () => { mine(); replay.pause(); replay.seek(Number(refs.scrub.value) / 1000); });
root.querySelectorAll("[data-speed]").forEach((node) =>
  node.addEventListener("click", () => replay.setSpeed(Number(node.dataset.speed))));
refs.save.addEventListener("click", () => {
  if (S.raw) download(new Blob([S.raw], { type: "application/json" }), "json");
});
refs.open.addEventListener("click", () => refs.file.click());
refs.file.addEventListener("change", async () => {
  const [file] = refs.file.files;
  refs.file.value = "";
  if (file) await openFile(file);
});
new ResizeObserver(([entry]) => {
  const { width } = entry.contentRect;
  root.dataset.size = width < 720 ? "narrow" : width < 1100 ? "middle" : width < 1500 ? "wide" : "large";
}).observe(root);

const api = {
  frame: onFrame,
  open: openText,
  get state() {
    const texts = S.sides.map((name) => S.race.lane(name));
    return {
      race: S.id, seq: S.seq, state: S.state, live: S.live, holes: S.holes,
        t: S.live ? S.race.duration(S.sides) : replay.t, duration: replay.duration,
        playing: replay.playing, speed: replay.speed,
      lasted: replay.lasted ?? null, counts: { left: views.left.shown, right: views.right.shown }, lanes: S.sides,
        totals: texts.map((lane) => lane?.steps.length ?? 0),
      metrics: S.shown?.metrics ?? null, speedup: S.shown?.speedup ?? null,
      noise: S.shown?.noise ?? null, loop: S.shown?.loop ?? "", fromFile: S.fromFile,
    };
  },
};
element.photofinish = window.photofinish = api;
clear(null);
watch("value", () => { if (props.value) onFrame(props.value); });
if (props.value) onFrame(props.value);
