// A race to take away: as the command and the Python that hold it again, and as a link to this page with its settings.

// A command or a script names no server.
const ownLanes = () => guessing().filter(({ drafter }) => drafter !== "server");

// What the right lane raced, by the names of the page's controls; null before there is a race.
function racedSettings() {
  const { spec, prompt, model } = S.header ?? {}, lane = spec?.lanes?.find((each) => each.name === S.sides[1]);
  return !lane || !prompt || lane.drafter === "server" ? null : { target: model.name, prompt: prompt.text, chat: Boolean(prompt.chat),
    drafter: lane.drafter, k: lane.k, rule: lane.rule,
    temperature: spec.params.temperature, top_p: spec.params.top_p, seed: spec.params.seed,
    max_new_tokens: spec.params.max_new_tokens };
}

function commandOf(raced) {
  const options = { target: raced.target === DEFAULT_TARGET ? null : raced.target, prompt: raced.prompt,
    ...(ownLanes().length > 1 ? {} : { drafter: raced.drafter, k: raced.k }),
    rule: raced.rule === "coupled" ? null : raced.rule,
    temperature: raced.temperature || null,
    "top-p": raced.top_p === 1 ? null : raced.top_p, seed: raced.seed || null,
    "max-new-tokens": raced.max_new_tokens };
  return `python -m engine race ${Object.entries(options).filter(([, value]) => value !== null).map(([name, value]) =>
    `--${name} ${shellQuoted(String(value))}`).join(" ")}${ownLanes().length > 1 ? ownLanes().map((lane) =>
    ` --lane ${shellQuoted(`${lane.name}=${lane.drafter}@${lane.k}`)}`).join("") : ""}${raced.chat ? " --chat" : ""} --audit`;
}

function pythonOf(raced) {
  const value = JSON.stringify, rule = raced.rule === "coupled" ? "" : `, rule=${value(raced.rule)}`;
  const target = raced.target === DEFAULT_TARGET ? "" : value(raced.target);
  const several = ownLanes().length > 1, lane = (each) =>
    `    LaneSpec(${value(each.name)}, ${value(each.drafter)}, ${value(each.k)}${rule}),\n`;
  const lanes = several ? `(\n    LaneSpec("plain", width="fastest"),\n    LaneSpec("baseline"),\n${ownLanes().map(lane)
    .join("")})` : `standard_lanes(${value(raced.drafter)}, k=${value(raced.k)}${rule})`;
  return `from engine import ${several ? "LaneSpec, " : ""}RaceSpec, SamplingParams, TorchRace, encode_prompt, load, race_speedup${
    several ? "" : ", standard_lanes"}

loaded = load(${target})
prompt = encode_prompt(loaded.tokenizer, ${value(raced.prompt)}, chat=${raced.chat ? "True" : "False"})
params = SamplingParams(temperature=${raced.temperature}, top_p=${raced.top_p}, seed=${raced.seed}, `
    + `max_new_tokens=${raced.max_new_tokens})
lanes = ${lanes}
race = TorchRace(loaded, RaceSpec(lanes, params, audit=True), prompt)
events = list(race.events())
lane = ${value(S.sides[1])}
print(f"{race_speedup(events, lane):.2f}x; {race.result()['verdicts'][lane]['sentence']}")
`;
}

function linkOf({ target, ...settings }) {
  return `${location.origin}${location.pathname}?${new URLSearchParams(settings)}`;
}

for (const button of root.querySelectorAll("[data-copy]"))
  button.addEventListener("click", async () => {
    const raced = racedSettings(), make = { command: commandOf, python: pythonOf, link: linkOf, json: () => S.raw }[button.dataset.copy];
    if (!S.raw) return undefined;
    if (!raced && button.dataset.copy !== "json")
      return board.alert("A race on servers does not name them: only its JSON can be copied.");
    try { await navigator.clipboard.writeText(make(raced)); board.announce("Copied."); } catch {
      return board.alert("This browser does not let a page copy; save the race instead."); }
    const words = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = words; }, 1200);
    return undefined;
  });
