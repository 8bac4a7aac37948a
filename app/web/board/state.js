// All state of the race on the screen, in one object that a new race replaces.

import { firstByRole, Race, sides } from "../base/model.js";
import { laneTitle } from "../base/words.js";

export let S;
// isFirst: no frame has come yet.
export const session = { isFirst: true };

export function newState(id, seq) {
  S = {
    // source: the server's id of the race, or a file
    id, fromFile: false, name: "",
    // the last frame: its number, and the race's state in it
    seq, state: "idle", status: null, ribbon: "",
    // the race's header, and its events by lane
    header: null, race: new Race(),
    // the numbers shown now
    shown: null,
    // the whole race once it is over: object, text to save, key on the server; whether its tables and candidates are
    // final
    recording: null, raw: null, key: "", complete: false,
    // by tab, the number of its request for figures
    asked: {},
    // What if: the WhatIf or why there is none (undefined: not tried yet), the race as run, whether a computed one is
    // shown
    whatIf: undefined, raced: null, computed: false,
    // the drafter and the k chosen in What if, which Decide takes over; the race's answer (tabs/answer.js)
    chosen: null, answer: undefined,
    // for a recorded race that was run again: whether the tokens were the same
    again: "",
    // position in the steps, see tabs/step_tab.js
    walk: undefined,
    // the screen: lanes left and right, the first lane of each role, live or a replay, whether it has played by itself,
    // whether both texts were complete since, whether a show holds the verdict back, whether the table has the final
    // times, sides whose end is marked
    sides: sides([]), first: firstByRole([]), live: true, autoplayed: false, met: false, verdictWaits: false,
    timed: false, marked: new Set(),
  };
}

// The verdict on a lane; null if there is none.
export function verdictOn(name) {
  const verdicts = S.recording?.verdicts ?? {};
  return Object.hasOwn(verdicts, name) ? verdicts[name] : null;
}

export function shownLanes() { return S.sides.map((name) => S.race.lane(name)); }
export function titles() { return S.sides.map((name) => laneTitle(name, S.first)); }
