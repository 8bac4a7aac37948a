// What this tab runs on the server, one thing at a time: a race, a study, a check-up or a load. All of its frames are
// the answer to one request, as server-sent events; while nothing runs there is no connection.

import { trigger } from "../host.js";
import { fetchOurs, nextEvent, NoAnswer, SILENT, staying } from "../base/dom.js";
import { readEvents } from "../base/events.js";
import { OVER } from "./place.js";
import { emit, on, S } from "./screen.js";

const AGAIN_MS = [200, 500, 1000, 2000, 4000];         // a race whose connection broke goes on for a while
const SILENCE_MS = 15000;         // the server says something every five seconds
const ASK_MS = 500;
// A browser has six HTTP/1 connections to one address: its tabs' streams leave one, so that a page still loads. It has
// locks, shared by all tabs of an address, where the page comes over HTTPS or from this machine.
const isLimited = navigator.locks && !/^h[23]/.test(performance.getEntriesByType("navigation")[0]?.nextHopProtocol);
const FOR_RUNS = ["1", "2", "3", "4"], FOR_MODELS = ["model"], WAITS_MS = 500;
const NO_ROOM = "Waiting for a connection: four other tabs of this browser follow what they run, as many as it can. "
  + "Stop one, or wait for its end.";
const NAMES = { race: "A race", again: "A race", resume: "A race", study: "A study of your prompts",
  checkup: "A check-up", load: "A study under load" };
const STREAMED = { Accept: "text/event-stream" };         // or jupyter-server-proxy keeps the answer until its end
export const BROKEN = "the connection to the server was lost";
// The server knows a tab by it, and whoever knows it can stop its races: it is never kept.
const tab = [...window.crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16)).join("-");
let current = null;

const isRace = ({ run }) => ["race", "again", "resume"].includes(run);
const goesOn = (job) => job.run !== "model" && !job.isOver && !job.aborter.signal.aborted;
export const isIdle = () => current === null || !goesOn(current);

// asked: {run, order, heard(frame), refused(words)}; isShort: it only asks, and runs nothing. Nothing happens if a race
// is asked for while one runs.
export async function run(asked) {
  const job = { order: {}, ...asked, aborter: new AbortController(), race: "", isBegun: false, isOver: false };
  if (asked.isShort) return follow(job);
  if (current && goesOn(current)) {
    if (isRace(job) && isRace(current)) return undefined;
    return job.refused(`${NAMES[current.run]} of this tab is still running; stop it first`);
  }
  const before = current;
  current = job;
  if (before && (isRace(job) || before.run === "model")) before.aborter.abort();
  await before?.done;                 // a study begins when the race before it has its tables
  job.done = follow(job).finally(() => { if (current === job) current = null; });
  return job.done;
}

// The values of the page's controls, which only Gradio has: see SETTINGS_JS in app/page/ui.py.
export async function pageSettings() {
  const ask = () => trigger("submit"), again = setInterval(ask, ASK_MS);      // Gradio may not listen yet
  const values = nextEvent("photofinish:settings");
  ask();
  return values.finally(() => clearInterval(again));
}

async function follow(job) {
  const isBare = ["resume", "model", "open"].includes(job.run);
  const body = { tab, run: job.run, order: job.order, settings: isBare ? {} : await pageSettings() };
  if (job.isShort || job.run === "resume" || !isLimited) return keepOn(job, body);       // an unwatched race ends
  return whenFree(job, () => keepOn(job, body));
}

async function whenFree(job, use) {
  const lock = new AbortController(), signal = AbortSignal.any([job.aborter.signal, lock.signal]);
  setTimeout(() => {
    if (signal.aborted) return;
    job.waits = true;
    job.heard(local("waiting", NO_ROOM, 0));
  }, WAITS_MS);
  const ask = (name) => navigator.locks.request(`photofinish.${name}`, { signal }, () => {
    if (signal.aborted) return undefined;          // two were free
    job.waits = false;
    lock.abort();
    return use().catch((error) => { setTimeout(() => { throw error; }); });
  });
  await Promise.allSettled((job.run === "model" ? FOR_MODELS : FOR_RUNS).map(ask));
  return signal.aborted ? undefined : use();         // a frame whose storage is blocked has no locks
}

// A frame about a run that the server does not know yet.
const local = (state, text, seq) => ({ race: "none", seq, state, rows: [], text, status: { text } });

// What to ask for once a stream has ended too early: a race that goes on, or the line about a model that still loads.
const again = (job, body) => (job.run === "model" ? (line?.includes('data-state="loading"') ?? true) && body
  : isRace(job) && job.isBegun && { tab, run: "resume", order: { race: job.race }, settings: {} });

async function keepOn(job, body) {
  for (let tries = 0; !job.aborter.signal.aborted; tries += 1) {
    const { isBegun } = job, wire = new AbortController(), signal = AbortSignal.any([job.aborter.signal, wire.signal]);
    const alive = () => {
      clearTimeout(job.silence);
      job.silence = setTimeout(() => wire.abort(), SILENCE_MS);
    };
    try {
      alive();
      const answer = await fetchOurs("stream", { method: "POST", body: JSON.stringify(body), signal, headers: STREAMED });
      if (answer.status < 500 && !answer.ok && !isBegun) return job.refused((await answer.json()).detail);
      if (answer.ok) await readEvents(answer.body, alive, (name, data) => { tries = 0; hear(job, name, data); });
    } catch (error) { job.why = error instanceof NoAnswer ? error.message : SILENT; }         // the connection broke
    clearTimeout(job.silence);
    if (!job.isOver) await staying();
    if (job.aborter.signal.aborted || job.isOver) return undefined;
    body = again(job, body);
    if (!body) return job.refused(job.isBegun ? BROKEN : job.why ?? SILENT);
    if (isRace(job)) emit("cut");
    await new Promise((resolve) => {
      setTimeout(resolve, AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)]);
      job.aborter.signal.onabort = resolve;          // the next run waits for this one
    });
  }
  return undefined;
}

function hear(job, name, data) {
  const value = JSON.parse(data);
  if (name === "model") return showModel(value);
  job.isBegun = true;
  job.isOver ||= name === "refused" || [...OVER, "lost"].includes(value.state);
  if (!name) job.race = value.race ?? "";
  try { return name ? job.refused(value) : job.heard(value); } catch (error) {
    return setTimeout(() => { throw error; });            // a fault of the page is not one of the connection
  }
}

// The line about the model is drawn by Gradio, and may be mounted later than this: see MODEL_JS in app/page/ui.py.
let line = null;
function showModel(html) {
  line = html;
  document.dispatchEvent(new CustomEvent("photofinish:model", { detail: line }));
}
document.addEventListener("photofinish:mounted", () => { if (line !== null) showModel(line); });

// run: "race", "study", "checkup" or "load".
export async function stop(what) {
  if (current?.waits) {
    current.aborter.abort();
    return current.heard(local("stopped", "Stopped.", 1));
  }
  return fetchOurs("stop", { method: "POST", body: JSON.stringify({ tab, run: what }) }).catch(() => emit("cut"));
}

// See nothing more of what runs; a race that nobody watches ends.
export function abandon() { current?.aborter.abort(); }

// What would be added to a race that is no longer on the screen, or seen by a page that is left.
on("cleared", () => { if (current?.isOver && isRace(current) && current.race !== S.id) abandon(); });
window.addEventListener("pagehide", abandon);
