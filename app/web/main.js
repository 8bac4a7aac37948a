// The race view: the board and its features, which get the board's events in the order of these imports.

import { props } from "./host.js";
import { clear, onFrame } from "./board/frames.js";
import { replay, root, S, views } from "./board/screen.js";
import "./board/visit.js";
import "./tabs/figures.js";
import "./tabs/whatif_tab.js";
import "./tabs/step_tab.js";
import "./tabs/guess_tab.js";
import "./tabs/decide_tab.js";
import { show } from "./files/files.js";
import "./files/share.js";
import "./files/clip.js";
import "./files/picture.js";
import "./shows/story.js";
import "./shows/stage.js";

// For the page's tests and tools.
const api = {
  frame: (text) => onFrame(JSON.parse(text)),
  open: (text, name) => { show(text, name); return true; },
  get state() {
    return {
      race: S.id, seq: S.seq, state: S.state, live: S.live,
      t: S.live ? S.race.duration(S.sides) : replay.t, duration: replay.duration,
      playing: replay.playing, speed: replay.speed,
      counts: { left: views.left.shown, right: views.right.shown }, lanes: S.sides,
      metrics: S.shown?.metrics ?? null, speedup: S.shown?.speedup ?? null,
      fromFile: S.fromFile, asked: S.asked,
    };
  },
};
root.photofinish = api;
clear(null);
if (props.value) onFrame(JSON.parse(props.value));
