// The race on the screen to take away: as a web page that plays it without a server, and its steps as a table.

const STEP_COLUMNS = ["lane", "step", "position", "num_drafted", "num_accepted", "num_committed", "width", "draft_s",
  "verify_s", "clock_s", "drafted", "token_ids", "text"];

// Twin of engine/recordings/steps_csv.py; compared by test_the_steps_are_the_recordings.
function stepsCsv(recording) {
  const cell = (value) => (/[",\r\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const rows = recording.events.filter(({ type }) => type === "step").map((step) => [
    /^[=+@\t\r-]/.test(step.lane) ? `'${step.lane}` : step.lane, step.index, step.position, numDrafted(step),
    step.num_accepted, step.token_ids.length, step.width ?? "", step.draft_s, step.verify_s, step.clock_s,
    step.drafted.join(" "), step.token_ids.join(" "), JSON.stringify(step.pieces.join(""))]);
  return [STEP_COLUMNS, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

// The page's title, and what a browser without scripts shows. Twin of `told` in app/player.py; compared by
// test_the_page_builds_the_file_that_the_command_builds.
function toldOf({ model, device, created, synthetic, spec, verdicts }) {
  const lane = spec.lanes.find(({ name }) => name === S.sides[1]), { race } = S.raced ?? S;
  const ratio = isElsewhere(S.header, S.sides[1]) ? null : raceSpeedup(race, S.first, race.lane(S.sides[1]), (each) => each.steps.length);
  const title = [synthetic?.length ? "SYNTHETIC: " : "", [model.name, lane?.drafter].filter(Boolean).join(", "),
    ratio === null ? "" : `: ${ratio.toFixed(1)}\u00d7 as fast as plain`].join("");
  const verdict = Object.hasOwn(verdicts, S.sides[1]) ? verdicts[S.sides[1]].sentence : "no verdict";
  return { title, says: `A recorded race of Photofinish: ${title}; ${verdict}. Recorded ${created} on ${device.name}. `
    + "It plays in a browser that runs JavaScript." };
}

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };

async function packed(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return btoa(letters);
}

let shell = "";             // app/player.py's page without a race, once the server has been asked for it

async function askForShell() {
  const answer = await fetch("player");
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.text();
}

async function webPage() {
  shell ||= await askForShell();
  const told = toldOf(S.recording), parts = { race: await packed(S.raw) };
  for (const name of ["title", "says"]) parts[name] = told[name].replace(/[&<>"']/g, (sign) => ENTITIES[sign]);
  return shell.replace(/@@(title|says|race)@@/g, (_, name) => parts[name]);
}

refs.savePage.addEventListener("click", async () => {
  if (!S.raw) return undefined;
  try { return download(new Blob([await webPage()], { type: "text/html" }), "html"); } catch {
    return board.alert("No web page can be made: the server does not answer. Save the race; later "
      + "\u201cpython -m engine export FILE --html PAGE\u201d makes one."); }
});
refs.saveSteps.addEventListener("click", () => {
  if (S.recording) download(new Blob([stepsCsv(S.recording)], { type: "text/csv" }), "csv");
});
