// A race at another k, step by step, from the recording's tables of drafts by position (docs/what_if.md). Pure: no DOM.
// Twin of engine/what_if/tables.py; compared by test_a_race_at_every_k_is_the_engines.

import { Race, stepSeconds, sum } from "../base/model.js";

export class WhatIf {
  // recording: one with tables; race: its lanes; first: the first lane of each role, by name; raced: the lane replaced.
  constructor(recording, race, first, raced) {
    const { tables, costs, table_pieces: pieces } = recording, steps = race.lane(first.baseline)?.steps ?? [];
    Object.assign(this, { tables, costs, race, raced, baseline: first.baseline, words: pieces ?? {},
      limit: recording.spec.params.max_new_tokens, longest: costs.verify_s.length - 1,
      tokens: steps.flatMap((step) => step.token_ids), pieces: steps.flatMap((step) => step.pieces) });
    // drafter -> every k in its tables; a block drafter has only some
    this.offered = new Map();
    for (const name of Object.keys(tables)) {
      const [, drafter, k] = /^(.*?)(?:@([1-9][0-9]?|auto))?$/s.exec(name);
      if (k === "auto") continue;
      const ks = k ? [Number(k)] : Array.from({ length: this.longest }, (_, i) => i + 1);
      this.offered.set(drafter, [...this.offered.get(drafter) ?? [], ...ks].sort((a, b) => a - b));
    }
  }

  // Step events without clock, for the whole text or for a stretch of it, as if the text ended there.
  steps(drafter, k, from = 0, to = this.tokens.length) {
    const limit = to < this.tokens.length ? to : this.limit;
    const name = Object.hasOwn(this.tables, drafter) ? drafter : `${drafter}@${k}`;
    const table = this.tables[name], draftS = this.costs.draft_s[name], steps = [];
    for (let at = from; at < to;) {
      const drafted = table[at].slice(0, Math.max(0, Math.min(k, limit - at - 1)));
      let kept = 0;
      while (kept < drafted.length && drafted[kept] === this.tokens[at + kept]) kept += 1;
      const end = Math.min(at + kept + 1, to);
      steps.push({ type: "step", lane: this.raced, index: steps.length, position: at, drafted, num_accepted: kept,
        token_ids: this.tokens.slice(at, end), draft_s: draftS[drafted.length],
        verify_s: this.costs.verify_s[drafted.length], width: null, pieces: this.pieces.slice(at, end),
        drafted_pieces: drafted.map((id, i) => (i < kept ? this.pieces[at + i] : this.words[id]) ?? `#${id} `),
        checksums: [] });
      at = end;
    }
    return steps;
  }

  seconds(drafter, k) { return sum(this.steps(drafter, k).map(stepSeconds)); }

  // The race with that lane replaced.
  at(drafter, k) {
    const race = new Race(), own = this.race.lane(this.raced), { lane, clock_s } = own.started;
    let clock = clock_s;
    race.add({ ...own.started, lane });
    for (const step of this.steps(drafter, k)) race.add({ ...step, clock_s: clock += stepSeconds(step) });
    race.add({ type: "finished", lane, clock_s: clock, reason: this.race.lane(this.baseline).finished?.reason ?? "length",
      num_tokens: this.tokens.length, decode_s: clock - clock_s });
    for (const other of this.race.lanes.values()) if (other !== own) race.lanes.set(other.name, other);
    return race;
  }

  // {drafter, k, seconds} of every choice.
  all() {
    return [...this.offered].flatMap(([drafter, ks]) =>
      ks.map((k) => ({ drafter, k, seconds: this.seconds(drafter, k) })));
  }
}
