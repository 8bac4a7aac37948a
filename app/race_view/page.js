// What the page around the race does by itself: which buttons can do something now, and the keys of the whole page.

const RACING = ["preparing", "running"];
const LOOK_AGAIN_MS = 300, LOOKS = 200;
const SETTLED_MS = 700;     // until an example's prompt and settings are in their places
const pageButton = (name) => document.getElementById(`page-${name}-button`);

// A button that would do nothing looks like it.
function offer() {
  const racing = waiting !== null || (!S.fromFile && RACING.includes(S.state));
  refs.liveHere.hidden = S.live || !(S.fromFile || S.ribbon.includes("RECORDED")) || !pageButton("race");
  refs.liveHere.disabled = racing;
  if (racing) endStory();
  if (racing) refs.offer.hidden = true;
  for (const [name, useless] of [["race", racing], ["stop", !racing], ["story", racing]]) {
    const button = pageButton(name);
    if (!button || button.disabled === useless) continue;
    const focused = document.activeElement === button;
    button.disabled = useless;
    if (focused) setTimeout(() => pageButton(name === "race" ? "stop" : "race")?.focus(), 0);
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    document.activeElement?.blur();         // Gradio takes a text over when its box is left
    pageButton("race")?.click();
  }
  if (event.key === "Escape") refs.share.open = false;
  if (event.key === "Escape") board.alert("");
  const listed = event.target.closest?.("[aria-expanded=true]");        // Escape closes a list of choices first
  if (event.key === "Escape" && !listed && panel()?.classList.contains("open")) settings();
});

const panel = () => document.getElementById("page-panel");

// Open the side panel and go into it, unless the visitor has gone elsewhere meanwhile; or close it and come back.
function settings() {
  const opens = !panel().classList.contains("open"), button = pageButton("settings");
  panel().querySelector(".toggle-button").click();
  button?.focus();
  if (opens) setTimeout(() => { if (document.activeElement === button) panel().querySelector("input")?.focus(); }, 60);
}

document.addEventListener("click", (event) => {
  if (event.target.closest?.("#page-settings-button, #page-panel-close")) settings();
});
document.addEventListener("click", (event) => { if (!refs.share.contains(event.target)) refs.share.open = false; });

// A tab that is loaded again asks for its race by this id; see app/ui.py.
function keepRace({ race, state, beside, ribbon }) {
  try {
    const goesOn = state === "finished" && !beside && !ribbon?.includes("RECORDED");
    if (goesOn || ["waiting", ...RACING].includes(state)) sessionStorage.setItem("photofinish.race", race);
    else if (sessionStorage.getItem("photofinish.race") === race) sessionStorage.removeItem("photofinish.race");
  } catch { /* a browser may forbid it */ }
}

// The settings of the race that was ordered here are there again when the tab is loaded again; see start.js.
function keepSettings(raced) {
  const { target, prompt, ...settings } = raced ?? {};
  try { sessionStorage.setItem("photofinish.settings", new URLSearchParams(settings).toString()); } catch { /* also */ }
}

// Who comes by a link sees no other prompt's race above the one that the link brings.
function isLinked() { return new URLSearchParams(location.search).has("prompt"); }

// The prompt typed here is there again next time, until an example takes its place.
function keepPrompt(text) {
  try {
    if (text === null) localStorage.removeItem("photofinish.prompt");
    else localStorage.setItem("photofinish.prompt", text);
  } catch { /* a browser may forbid it */ }
}

document.addEventListener("input", (event) => {
  if (!event.target.closest?.("#page-prompt")) return;
  keepPrompt(event.target.value);
  document.getElementById("page-presets")?.classList.add("page-own");     // an example's sentence is not of this prompt
});
document.addEventListener("click", (event) => {
  const example = event.target.closest?.("#page-presets button:not(#page-settings-button)");
  if (!example) return;
  keepPrompt(null);
  keepSettings(null);
  document.getElementById("page-presets").classList.remove("page-own");
  if (S.ribbon.includes("RECORDED") && S.name === example.textContent.trim()) playByItself(true);  // it is there already
});
refs.alertClose.addEventListener("click", () => board.alert(""));
// Of a file, that very race once more. Of a recorded one, the example that it is of, with its settings; then the race.
refs.liveHere.addEventListener("click", () => {
  if (S.fromFile) return trigger("retry", { race: S.id, recording: S.raw });
  const prompt = document.querySelector("#page-prompt textarea"), race = () => pageButton("race")?.click();
  if (!prompt || prompt.value === S.header?.prompt.text) return race();
  [...document.querySelectorAll("#page-presets button")].find((each) => each.textContent.trim() === S.name)?.click();
  return setTimeout(race, SETTLED_MS);
});
// The page's buttons may come later than the race, and on a busy machine much later. An exported race has none.
function offerSoon(left) {
  offer();
  if (left && !pageButton("race")) setTimeout(() => offerSoon(left - 1), LOOK_AGAIN_MS);
}
setTimeout(() => offerSoon(LOOKS), 0);
