// The page's own buttons, outside the race view, and its address. An exported page has no such buttons.

import { trigger } from "../host.js";
import { nextEvent, numberBox, remember, remembered } from "../base/dom.js";
import { laneSpec } from "../base/model.js";
import { waiting } from "./card.js";
import { emit, refs, S } from "./screen.js";

export const RACING = ["preparing", "running"];
export const pageButton = (name) => document.getElementById(`page-${name}-button`);

export const promptBox = () => document.querySelector("#page-prompt textarea");
export const temperature = () => numberBox("Temperature");

// Whether the prompt is the visitor's own, or an edited example.
export const isOwnPrompt = () => document.querySelector("#page-presets.page-own") !== null;
// An own text that is raced as it is given, at the temperature that is set.
export const leaveAsIs = (text) => remember("photofinish.as-is", text, true);
export const isGiven = (text) => text === remembered("photofinish.as-is", true);
export const examples = () => [...document.querySelectorAll("[id^=page-example-]")];

// What a link brings. Its prompt comes after #, so that no server or proxy finds it too long, or writes it down.
export const link = new URLSearchParams(`${location.search}&${location.hash.slice(1)}`);
window.addEventListener("hashchange", () => { if (location.hash.includes("prompt=")) location.reload(); });
// True if it brings a prompt: no other prompt's race is shown above it then.
export const isLinked = () => link.has("prompt");

// The right lane's settings by the names of the page's controls; null if there is no race yet or it ran on a server.
export function racedSettings() {
  const { spec, prompt, model } = S.header ?? {}, lane = laneSpec(S.header, S.sides[1]);
  return !lane || !prompt || lane.drafter === "server" ? null : { target: model.name, prompt: prompt.text,
    chat: Boolean(prompt.chat), drafter: lane.drafter, k: lane.k, rule: lane.rule,
    temperature: spec.params.temperature, top_p: spec.params.top_p, seed: spec.params.seed,
    max_new_tokens: spec.params.max_new_tokens };
}

// Fill prompt and settings in: see FILL_JS in app/page/ui.py. Returns when it is done.
export function fillIn(settings) {
  document.getElementById("page-presets")?.classList.add("page-own");      // hides the example's sentence
  document.addEventListener("photofinish:fill", ({ detail }) => { detail.settings = settings; }, { once: true });
  const isDone = nextEvent("photofinish:filled");
  leaveAsIs(settings.prompt);
  trigger("edit");
  return isDone;
}

// Disable the buttons that would do nothing.
export function updatePageButtons() {
  const racing = waiting !== null || (!S.fromFile && RACING.includes(S.state));
  refs.liveHere.hidden = S.live || !(S.fromFile || S.ribbon.includes("RECORDED")) || !pageButton("race");
  refs.liveHere.disabled = racing;
  refs.liveHere.toggleAttribute("data-opened", S.fromFile);        // elsewhere Race does the same: see page.css
  if (racing) emit("racing");
  for (const [name, useless] of [["race", racing], ["stop", !racing], ["story", racing]]) {
    const button = pageButton(name);
    if (!button || button.disabled === useless) continue;
    const focused = document.activeElement === button;
    button.disabled = useless;
    if (focused) setTimeout(() => pageButton(name === "race" ? "stop" : "race")?.focus(), 0);
  }
}
