// The tab "Decide": what the race on the screen would save, and the commands that serve it. Drawn when it is looked at;
// what the visitor types stays in this browser.

const DECIDE_KEY = "photofinish.decide";
const ENTERED = { dollars: "", tokens: "10000000", hours: "24", wanted: "30", goalTokens: "200", goalSeconds: "2" };
const ENTER_A_PRICE = "enter a price";
const boxes = new Map([...root.querySelectorAll("[data-decide]")].map((node) => [node.dataset.decide, node]));
let decided = [];       // what the drawn tab is of
let own = {};           // what was typed in this browser, by box
try { own = { ...JSON.parse(localStorage.getItem(DECIDE_KEY) ?? "{}") }; } catch { /* a browser may forbid it */ }

// Fill the boxes: what was typed here before, else what is usual, else what this device costs.
function fillBoxes() {
  const price = listPrice(S.header?.device);
  const usual = { ...ENTERED, dollars: price ? String(price.dollars) : "" };
  for (const [name, box] of boxes) {
    const value = typeof own[name] === "string" ? own[name] : usual[name];
    if (box !== document.activeElement && box.value !== value) box.value = value;
  }
  write(refs.priceSource, own.dollars ? "your price" : price ? `about; ${price.source}` : ENTER_A_PRICE);
}

function keepBox({ target }) {
  if (target.value === "") delete own[target.dataset.decide]; else own[target.dataset.decide] = target.value;
  try { localStorage.setItem(DECIDE_KEY, JSON.stringify(own)); } catch { /* a browser may forbid it */ }
  decided = [];
  drawDecide();
}

// The numbers in the boxes; where one is no number above 0, the usual one, and of the price null.
function entered() {
  const odd = [];
  const number = (name, most) => {
    const { value: text } = boxes.get(name), usual = ENTERED[name] === "" ? null : Number(ENTERED[name]);
    if (Number(text) > 0 && Number(text) <= most) return Number(text);
    if (text !== "") odd.push(`${text} is not above 0 and at most ${most}; ${usual ?? "no price"} is taken.`);
    return usual;
  };
  return { odd, dollars: number("dollars", 1e6), tokens: number("tokens", 1e15), hours: number("hours", 24),
    wanted: number("wanted", 1e6), goalTokens: number("goalTokens", 1e6), goalS: number("goalSeconds", 1e6) };
}

// {name, steps, tokensPerS, prefillS} of the faster plain lane and of the one with guesses; null where there is none.
function lanesToPrice() {
  const of = (name) => {
    const lane = S.race.lane(name), found = lane && (S.metrics?.[name] ?? metricsOf(lane, lane.steps.length));
    const title = name === S.first.plain && name !== S.sides[0] ? ALONE : laneTitle(name, S.first);
    return found?.tokens_per_s > 0 ? { name: title, steps: lane.steps, tokensPerS: found.tokens_per_s,
      prefillS: found.prefill_s ?? 0 } : null;
  };
  const plain = [of(S.first.plain), S.first.baseline ? of(S.first.baseline) : null].filter(Boolean)
    .sort((a, b) => b.tokensPerS - a.tokensPerS)[0] ?? null;
  return { plain, other: isElsewhere(S.header, S.sides[1]) ? null : of(S.sides[1]) };
}

function drawDecide() {
  if (root.dataset.tab !== "decide") return;
  const now = [S.race, S.sides[1], S.header, S.recording, S.live, S.metrics];
  if (now.every((value, i) => value === decided[i]) && decided.length) return;
  decided = now;
  fillBoxes();
  const { plain, other } = lanesToPrice(), ready = !S.live && plain && other;
  refs.decide.hidden = !ready;
  write(refs.decideWaits, ready ? "" : S.live ? "This is said when the race is over." :
    isElsewhere(S.header, S.sides[1]) ? "The lane on the right ran on a server, and the plain lane here: what guesses "
      + "save can only be said of one program on one device." :
    "This race has no plain lane and no lane with guesses that wrote a token, so there is nothing to compare.");
  if (!ready) return;
  drawMoney(plain, other);
  const lane = S.header.spec.lanes.find(({ name }) => name === S.sides[1]);
  drawProduction(productionOf(S.header, lane, other.steps));
  drawMemory(lane, sum(other.steps.map((step) => step.token_ids.length)),
    usersAt(other.tokensPerS, entered().wanted));
}

// What the lane's drafter takes, where the race says it; numUsers: those of the table of money.
function drawMemory(lane, numTokens, numUsers) {
  const { rows, words } = memoryKnown(S.header, lane) ?
    memoryOf(S.header.drafter_bytes[lane.name], S.header.prompt.token_ids.length + numTokens, numUsers) :
    { rows: [], words: "" };
  refs.memory.hidden = !rows.length;
  refs.memoryUsers.hidden = numUsers < 2;
  write(refs.memoryUsers, `${numUsers} users`);
  refs.memoryRows.replaceChildren(...rows.map(([what, ...cells]) => rowOf(what, "", cells)));
  write(refs.memoryWords, words);
}

function rowOf(words, term, cells) {
  const line = make("tr"), head = make("th", "", words);
  head.scope = "row";
  line.title = term;
  line.append(head, ...cells.map((cell) => make("td", "", cell)));
  return line;
}

function drawMoney(plain, other) {
  const told = entered(), [a, b] = [plain, other].map((lane) => dayOf(lane.tokensPerS, told)), saved = savedBy(a, b);
  const priced = told.dollars !== null, cash = (value) => (priced ? dollarWords(value) : ENTER_A_PRICE);
  const per = (value) => (priced ? perThousand(value) : ENTER_A_PRICE);
  const year = (day, whole) => (priced ? `${dollarWords(day)}, ${dollarWords(whole)} a year` : "");
  const machines = ({ machines: n, whole }) => `${n.toFixed(2)}: rent ${whole}`;
  const users = [plain, other].map((lane) => usersAt(lane.tokensPerS, told.wanted));
  const inTime = [plain, other].map((lane) => secondsFor(lane, told.goalTokens));
  const goal = (time) => `${time.toFixed(2)} s: ${time <= told.goalS ? "yes" : "no"}`;
  const need = speedupNeeded(plain, other.prefillS, told.goalTokens, told.goalS);
  const rows = [
    ["tokens a second", "tokens/s of one text at a time", rate(plain.tokensPerS), rate(other.tokensPerS),
      `${(other.tokensPerS / plain.tokensPerS).toFixed(2)}\u00d7`],
    ["1,000 tokens", "$/1k", per(a.perMillion), per(b.perMillion), percent1(saved.share)],
    ["1,000,000 tokens", "$/1M", cash(a.perMillion), cash(b.perMillion), percent1(saved.share)],
    ["work a day", "hours in which one machine writes the day's tokens", hourWords(a.workHours), hourWords(b.workHours),
      hourWords(a.workHours - b.workHours)],
    ["machines (GPUs)", "the work over the hours of service; only whole ones can be rented", machines(a), machines(b),
      String(a.whole - b.whole)],
    ["a day, by work", "the hours of work, paid alone", cash(a.byWork), cash(b.byWork),
      year(saved.byWork, saved.byWorkYear)],
    ["a day, rented whole", "whole machines for all hours of service", cash(a.rented), cash(b.rented),
      year(saved.rented, saved.rentedYear)],
    [`users at ${told.wanted} tok/s each`, "tokens/s over the wanted ones, rounded down: one text at a time, in turns",
      String(users[0]), String(users[1]), `${users[1] < users[0] ? "" : "+"}${users[1] - users[0]}`],
    [`${told.goalTokens} tokens under ${told.goalS} s`, "latency: reading the prompt, then so many tokens",
      goal(inTime[0]), goal(inTime[1]), need === null ? "no speed-up: reading the prompt takes longer" :
        inTime[0] <= told.goalS ? "plain is enough" : `from ${needWords(need)}\u00d7 on`],
  ];
  write(refs.decidePlain, plain.name);
  write(refs.decideOther, other.name);
  refs.decideRows.replaceChildren(...rows.map(([words, term, ...cells]) => rowOf(words, term, cells)));
  const less = (value, words) => `${words(Math.abs(value))} ${value < 0 ? "more" : "less"}`;
  write(refs.decideSays, `${less(saved.share, percent1)} work for the same tokens${priced ? `: ${less(saved.byWork,
    dollarWords)} a day by work, ${less(saved.rented, dollarWords)} rented whole` : ""}.`);
  write(refs.decideCaution, [...told.odd, ...moneyCautions(plain, other)].join(" "));
  const shown = (lane) => `1,000,000 / ${rate(lane.tokensPerS)} tok/s \u00d7 $${told.dollars} / 3,600`;
  write(refs.decideFormula, priced ? [[plain, a], [other, b]].map(([lane, day]) =>
    `${lane.name}: ${shown(lane)} = ${dollarWords(day.perMillion)}.`).join(" ") :
    "1,000,000 / tok/s \u00d7 $ an hour / 3,600; enter a price.");
}

// What stands beside the ratio stands beside the money.
function moneyCautions(plain, other) {
  const noise = ratioNoise(plain.steps, other.steps);
  return [isNoise(other.tokensPerS / plain.tokensPerS, noise) ?
    `The difference is within the noise (\u00b1${(100 * noise).toFixed(0)} %): no saving is shown by this race.` : "",
  S.disturbed && "The machine was disturbed: do not quote these figures.",
  S.header.synthetic?.includes(S.sides[1]) && "The drafts are made up: a real drafter of that rate would save this.",
  loopSentence(other.steps.flatMap((step) => step.token_ids))].filter(Boolean);
}

function copyButton(what, text) {
  const button = make("button", "pf-button", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", `Copy the ${what}`);
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(text); } catch {
      return board.alert("This browser does not let a page copy; select the command instead."); }
    board.announce("Copied.");
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1200);
    return undefined;
  });
  return button;
}

// Each option of a command whole in one line, where it fits into one.
function commandBox(text) {
  const box = make("pre", "pf-serve-command");
  box.append(...text.split(/(?<= )(?=--)/).map((word) => make("span", "", word)));
  return box;
}

function snippet(title, words, text, notes) {
  const box = make("section", "pf-serve"), head = make("h4", "pf-serve-head", title);
  head.append(" ", make("span", "pf-serve-version", words));
  if (text !== null) head.append(copyButton(title === words ? title : `command for ${title}`, text));
  box.append(head);
  if (text !== null) box.append(commandBox(text));
  if (notes.length) box.append(make("p", "pf-note", notes.join(" ")));
  return box;
}

function drawProduction({ servers, client, notes }) {
  write(refs.serveNotes, notes.join(" "));
  refs.serve.replaceChildren(...servers.map(({ name, version, command, notes: about }) =>
    snippet(name, `${version}, checked ${CHECKED}`, command, about)));
  refs.client.hidden = client === null;
  refs.clientRows.replaceChildren(...(client ? [snippet("curl", "this race's request", client.curl, []),
    snippet("Python", "package openai", client.python, ["The server draws with other random numbers: above "
      + "temperature 0 the text may differ."])] : []));
  write(refs.serveOld, servers.length ? OLD_FLAGS : "");
}

refs.sources.replaceChildren(...sourceFigures().map(([what, printed, known]) => rowOf(what, "", [printed, known])));
for (const box of boxes.values()) box.addEventListener("input", keepBox);
root.addEventListener("photofinish:painted", drawDecide);
