// The dialog "Your prompts". Finished prompts are kept in this browser, so that a study can be resumed.

import { MAX_NEW_TOKENS, MAX_PROMPTS, THRESHOLD } from "../host.js";
import { remember, rememberedJson } from "../base/storage.js";
import { oneLine, optionWords, plural, settingsOptions } from "../base/text.js";
import { dialog, refs } from "./box.js";
import { chosen, connect, drawControls, isLost, read, runs, study } from "./dialog.js";
import { isDoubtful, MEANS, promptRows, SHOWN, strips, summaryRows, verdictWords } from "./results.js";

const KEPT_KEY = "photofinish.study";
const BUTTON = "#page-study-button";
// rows: by line and drafter; of: nameOf their prompts.
const results = { rows: new Map(), of: "" };

// Identifies prompts and limits, to find kept rows. The server decides whether these really belong to them.
function nameOf() {
  const { text } = study.source, whole = `${refs.limit.value} ${refs.length.value} ${text}`;
  let hash = 0;
  for (let i = 0; i < whole.length; i++) hash = (Math.imul(hash, 31) + whole.charCodeAt(i)) | 0;
  return `${hash} ${whole.length}`;
}

function keptRun() {
  const kept = rememberedJson(KEPT_KEY);
  return study.source && kept?.of === nameOf() && Array.isArray(kept.rows) ? kept : null;
}

function order() {
  const kept = keptRun(), { name, text } = study.source;
  Object.assign(results, { rows: new Map(), of: nameOf() });
  return { name, text, limit: Number(refs.limit.value), max_new_tokens: Number(refs.length.value),
    kept: kept && JSON.stringify(kept) };
}

function heard(frame) {
  const { rows, of } = results, last = study.frame;
  if (frame.key && last?.key && (frame.key !== last.key || frame.num_done < last.num_done)) rows.clear();
  const before = rows.size;
  for (const row of frame.rows ?? []) rows.set(`${row.line} ${row.drafter}`, row);
  if (frame.key && (rows.size !== before || ["finished", "stopped", "failed"].includes(frame.state)))
    remember(KEPT_KEY, frame.state === "finished" ? null :
      JSON.stringify({ of, key: frame.key, ran_on: frame.ran_on, rows: [...rows.values()] }));
}

function draw() {
  const { frame, source } = study, kept = runs() ? null : keptRun();
  const rows = [...results.rows.values()], report = frame?.report ?? null;
  const limit = Number(refs.limit.value);
  refs.leftOut.textContent = source && limit > 0 && limit < source.num ? `Racing ${limit} of them, evenly by kind; `
    + `${source.num - limit} left out. Raise the limit for more.` : "";
  refs.start.textContent = kept?.rows.length ? "Continue" : "Start";
  drawProgress(rows);
  refs.start.disabled ||= !source;
  refs.result.hidden = !rows.length;
  if (!rows.length) return;
  refs.verdict.textContent = report ? verdictWords(report) : "The verdict comes at the end";
  refs.result.dataset.verdict = !report ? "" : isDoubtful(report) ? "unclear" : report.verdict;
  refs.reason.textContent = report ? oneLine(report.reason) : "Each dot is a finished prompt.";
  refs.strips.replaceChildren(...strips(rows, THRESHOLD));
  refs.strips.setAttribute("aria-label", `Speed-up over plain of ${plural(frame.num_done, "prompt")}, a dot each`);
  refs.means.textContent = report ? MEANS : "";
  refs.tableBox.hidden = !report;
  refs.aboveHead.textContent = `above ${THRESHOLD}×`;
  if (report) refs.table.replaceChildren(...summaryRows(report.summary));
  refs.allHead.textContent = `All ${plural(frame.num_done, "prompt")}, slowest first`;
  refs.sameHead.textContent = frame.on_servers ? "same text" : "identical";
  refs.copy.hidden = Boolean(frame.on_servers);     // no command studies prompts on servers
  refs.all.replaceChildren(...promptRows(rows));
  refs.circumstances.textContent = [...(frame.ribbons ?? []), frame.circumstances].filter(Boolean).join(". ");
  refs.save.disabled = refs.copy.disabled = !report;
}

function drawProgress(rows) {
  const { frame, state } = study, { num_done: done, num_prompts: all } = frame ?? {}, lost = isLost();
  drawControls(["start", "open", "paste", "limit", "length"], BUTTON,
    runs() && all ? `Your prompts ${done}/${all}` : "Your prompts");
  if (all) refs.progress.value = done / all; else refs.progress.removeAttribute("value");
  const says = lost ? "The server is not responding. Finished prompts are saved: reload the page and choose the same "
    + "prompts to continue." : state === "asked" ? "Contacting the server." : state === "finished" ? "" : frame?.text;
  refs.says.textContent = [all && `${done} of ${plural(all, "prompt")} finished.`, oneLine(says ?? "")].filter(Boolean)
    .join(" ");
  const left = runs() && !lost ? frame?.left_s : null;
  refs.left.textContent = !left ? "" :
    `About ${left >= 90 ? `${Math.round(left / 60)} min` : `${Math.round(left)} s`} left.`;
  const disturbed = new Set(rows.filter((row) => row.disturbed).map((row) => row.line)).size;
  const faults = rows.filter((row) => row.fault).length;
  refs.caution.textContent = [frame?.note, !runs() && done < all && rows.length && "These are the results so far.",
    disturbed && `The machine was disturbed in ${disturbed} of ${plural(done, "race")}.`,
    faults && `${plural(faults, "race")} failed; see \u201cAll prompts\u201d.`].filter(Boolean).join(" ");
}

function command() {
  const { drafters, params } = study.frame, { target, ...settings } = settingsOptions({ ...study.frame, ...params });
  const options = { target, prompts: study.source.name, limit: refs.limit.value, drafter: drafters.join(","),
    ...settings };
  return `python -m engine study-prompts ${optionWords(options)}`;
}

refs.limit.max = MAX_PROMPTS;
refs.length.max = MAX_NEW_TOKENS;
refs.paste.addEventListener("input", () => { chosen("prompts.txt", refs.paste.value); draw(); });
refs.file.addEventListener("change", () => { refs.paste.value = ""; });
for (const name of ["limit", "length"]) refs[name].addEventListener("input", draw);
dialog.addEventListener("dragover", (event) => event.preventDefault());
dialog.addEventListener("drop", async (event) => {
  event.preventDefault();
  if (runs()) return;
  refs.paste.value = "";
  await read(event.dataTransfer.files[0]);
  draw();
});

function result() {
  const rows = [...results.rows.values()].map((row) => Object.fromEntries(SHOWN.map((name) => [name, row[name]])));
  return { schema: study.frame.schema, rows, ...study.frame.report };
}

connect({ order, draw, heard, result, command }, BUTTON, "photofinish_study.json");
