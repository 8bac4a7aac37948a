// A race at another size of its drafts, step by step, from the recording's tables of drafts by position
// (docs/read_a_race.md). Pure: no DOM. Twin of engine/what_if/tables.py; compared by
// test_a_race_at_every_size_is_the_engines.

import { keptIf, Race, stepSeconds, sum } from "../base/model.js";

const TREES = "@tree";
const MOST = 15;              // every tree's table has drafts of this size, where there are so many tokens

// The drafter and the k of a lane that drafts `size` tokens a step from what `offered` names.
export function laneOf(name, size) {
  if (!name.endsWith(TREES)) return { drafter: name, k: size };
  return { drafter: name.slice(0, -TREES.length), k: `tree:${size}` };
}

// The name that `offered` has for a lane, or undefined; and the size of its drafts, NaN if it varies.
export function offeredTo({ drafter, k }, offered) {
  return [...typeof k === "string" ? [drafter + TREES] : [], drafter].find((name) => offered.has(name));
}
export const sizeOf = (k) => Number(String(k).replace("tree:", ""));

export class WhatIf {
  // recording: one with tables; race: its lanes; first: the first lane of each role, by name; raced: the lane replaced.
  constructor(recording, race, first, raced) {
    const { tables, costs, drawn = {}, table_parents: parents, table_pieces: pieces } = recording;
    const steps = race.lane(first.baseline)?.steps ?? [];
    Object.assign(this, { tables, costs, drawn, race, raced, baseline: first.baseline, words: pieces ?? {},
      parents: parents ?? {}, limit: recording.spec.params.max_new_tokens, longest: costs.verify_s.length - 1,
      tokens: steps.flatMap((step) => step.token_ids), pieces: steps.flatMap((step) => step.pieces) });
    // drafter, or name of a table of trees -> every size of drafts in its tables; a block drafter has only some
    this.offered = new Map();
    for (const name of Object.keys(tables)) {
      const [, drafter, k] = /^(.*?)(?:@([1-9][0-9]?|auto|tree))?$/s.exec(name);
      if (k === "auto") continue;        // of an older version
      const most = k === "tree" ? Math.max(MOST, ...tables[name].map((draft) => draft.length)) : this.longest;
      const ks = Number(k) ? [Number(k)] : Array.from({ length: Math.min(most, this.longest) }, (_, i) => i + 1);
      const entry = k === "tree" ? name : drafter;
      this.offered.set(entry, [...this.offered.get(entry) ?? [], ...ks].sort((a, b) => a - b));
    }
  }

  // Step events without clock, for the whole text or for a stretch of it, as if the text ended there. drafter: from
  // `offered`.
  steps(drafter, size, from = 0, to = this.tokens.length) {
    const limit = to < this.tokens.length ? to : this.limit;
    const name = Object.hasOwn(this.tables, drafter) ? drafter : `${drafter}@${size}`;
    const trees = Object.hasOwn(this.parents, name) ? this.parents[name] : [];
    const table = this.tables[name], draftS = this.costs.draft_s[name], steps = [];
    for (let at = from; at < to;) {
      const drafted = table[at].slice(0, Math.max(0, Math.min(size, limit - at - 1)));
      const cut = (trees[at] ?? []).slice(0, drafted.length), parents = cut.every((row, i) => row === i) ? [] : cut;
      const kept = keptIf(drafted, parents, this.tokens.slice(at, at + drafted.length));
      const end = Math.min(at + kept.length + 1, to);
      steps.push({ type: "step", lane: this.raced, index: steps.length, position: at, drafted,
        num_accepted: kept.length, token_ids: this.tokens.slice(at, end), draft_s: draftS[drafted.length],
        verify_s: this.costs.verify_s[drafted.length], width: null, pieces: this.pieces.slice(at, end),
        drafted_pieces: drafted.map((id, i) =>
          (kept.includes(i) ? this.pieces[at + kept.indexOf(i)] : this.words[id]) ?? `#${id} `),
        checksums: [], ...parents.length ? { parents } : {} });
      at = end;
    }
    return steps;
  }

  seconds(drafter, size) { return sum(this.steps(drafter, size).map(stepSeconds)); }

  // The race with that lane replaced.
  at(drafter, size) {
    const race = new Race(), own = this.race.lane(this.raced), { lane, clock_s } = own.started;
    let clock = clock_s;
    race.add({ ...own.started, lane });
    for (const step of this.steps(drafter, size)) race.add({ ...step, clock_s: clock += stepSeconds(step) });
    const reason = this.race.lane(this.baseline).finished?.reason ?? "length";
    race.add({ type: "finished", lane, clock_s: clock, reason,
      num_tokens: this.tokens.length, decode_s: clock - clock_s });
    for (const kept of this.race.lanes.values()) if (kept !== own) race.lanes.set(kept.name, kept);
    return race;
  }

  // {drafter, k, seconds, numSteps, blockSteps} of drafts that a server draws by probability, expected over its dice,
  // so no race; blockSteps: where it verifies them as a block.
  expected() {
    return Object.entries(this.drawn).flatMap(([drafter, byK]) => Object.entries(byK).map(([k, row]) =>
      ({ drafter: `${drafter}~probabilistic`, k: Number(k), seconds: row.seconds, numSteps: row.steps,
        blockSteps: row.block_steps })));
  }

  // {drafter, k, seconds} of every choice; drafter and k as in `offered`.
  all() {
    return this.every ??= [...this.offered].flatMap(([drafter, ks]) =>
      ks.map((k) => ({ drafter, k, seconds: this.seconds(drafter, k) })));
  }
}
