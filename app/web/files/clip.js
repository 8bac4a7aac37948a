// A clip of a race, for slides and chats: both lanes on one clock, then the picture. The browser's own recorder makes
// the video while the frames are drawn, so it takes as long as it plays.

import { cut, oneLine, plural, seconds } from "../base/text.js";
import { board, refs, shownLanes, titles } from "../board/screen.js";
import { handOver } from "./files.js";
import { COLOURS, drawPicture, Pen, SHOT } from "./picture.js";
import { raceTitle, taskWords } from "./result.js";

// The race plays at its own speed if that takes from LEAST_MS to MOST_MS; then the picture stays for END_MS.
const LEAST_MS = 3000, MOST_MS = 5500, END_MS = 2500, FRAME_MS = 40, BITS_A_SECOND = 2e6;
const NUM_LINES = 4, NUM_CHARACTERS = 600;       // of each text, its end
const FORMATS = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm", "video/mp4"];
const formatOf = () => FORMATS.find((kind) => window.MediaRecorder?.isTypeSupported(kind));

// How fast it plays, against the race: "at real speed", "2.1 times slower than real".
function paceWords(factor) {
  if (factor === 1) return "at real speed";
  return factor > 1 ? `${factor.toFixed(1)}\u00d7 faster than real` : `${(1 / factor).toFixed(1)}\u00d7 slower than real`;
}

// A frame at the lane time t.
function drawFrame(pen, { lanes, names, title, task, total, pace }, t) {
  pen.head(title, task);
  lanes.forEach((lane, i) => {
    const y = 176 + 200 * i, count = lane.countAt(t), tokens = lane.tokens[count];
    pen.lane(y, names[i], tokens / total, COLOURS[i], plural(tokens, "token"));
    const text = lane.steps.slice(0, count).map(({ pieces }) => pieces.join("")).join("").slice(-NUM_CHARACTERS);
    pen.lines(text, 22).slice(-NUM_LINES).forEach((line, row) =>
      pen.write(oneLine(line), y + 68 + 30 * row, 22, "board-soft"));
  });
  pen.say(`${seconds(t)} s`, SHOT.pad, 590, 26, "board-ink", { weight: 700 });
  pen.say(pace, SHOT.pad + 130, 590, 22, "board-soft");
}

// Records the race on the screen. Returns the video, if the browser gives it out.
function record(kind) {
  const end = drawPicture(), pen = new Pen(), lanes = shownLanes();
  if (!end) return undefined;
  const duration = Math.max(...lanes.map(({ clock }) => clock));
  const race = Math.min(MOST_MS, Math.max(LEAST_MS, 1000 * duration));
  const about = { lanes, names: titles(), title: raceTitle(), task: taskWords(),
    total: Math.max(...lanes.map(({ tokens }) => tokens.at(-1)), 1), pace: paceWords(1000 * duration / race) };
  const recorder = new window.MediaRecorder(pen.canvas.captureStream(1000 / FRAME_MS),
    { mimeType: kind, videoBitsPerSecond: BITS_A_SECOND });
  const parts = [], began = performance.now();
  const draw = () => {
    const passed = performance.now() - began;
    if (passed < race) drawFrame(pen, about, duration * passed / race);
    else pen.pen.drawImage(end, 0, 0);
    if (passed >= race + END_MS && recorder.state === "recording") recorder.stop();
  };
  drawFrame(pen, about, 0);
  return new Promise((resolve, reject) => {
    const timer = setInterval(draw, FRAME_MS);
    recorder.ondataavailable = ({ data }) => parts.push(data);
    recorder.onerror = ({ error }) => { clearInterval(timer); reject(error); };
    recorder.onstop = () => {
      clearInterval(timer);
      const video = new Blob(parts, { type: kind.replace(/;.*/, "") });
      if (video.size) resolve(video); else reject(new Error("its recorder wrote nothing"));
    };
    recorder.start();
  });
}

refs.clip.hidden = !formatOf();
refs.clip.addEventListener("click", async () => {
  if (!shownLanes().every((lane) => lane?.steps.length)) return;
  const kind = formatOf(), label = refs.clip.textContent;
  Object.assign(refs.clip, { disabled: true, textContent: "Recording \u2026" });
  try {
    const video = await record(kind);
    refs.clip.textContent = label;
    if (video) await handOver(video, /\/(\w+)/.exec(kind)[1], refs.clip);
  } catch (error) {
    refs.clip.textContent = label;
    board.alert(`This browser cannot record a clip: ${cut(oneLine(error.message), 200)}. Save a picture instead.`);
  } finally {
    refs.clip.disabled = false;
  }
});
