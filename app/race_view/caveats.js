// What must stand beside a ratio: that the text repeats itself, or that the ratio cannot be told from 1. Twin of
// engine/caveats.py, which says how both are measured and why; compared by test_caveats_are_those_of_the_engine.

const SHORTEST = 8, LOOPS_ABOVE = 1 / 3, NORMAL_95 = 1.96;

function repeatedShare(ids) {
  const copied = new Uint8Array(ids.length);
  for (let back = 1; back <= ids.length >> 1; back++) {
    let row = 0;
    for (let i = back; i <= ids.length; i++) {
      if (i < ids.length && ids[i] === ids[i - back]) { row += 1; continue; }
      if (row >= Math.max(back, SHORTEST)) copied.fill(1, i - row, i);
      row = 0;
    }
  }
  return ids.length ? sum([...copied]) / ids.length : 0;
}

function loopSentence(ids) {
  const share = repeatedShare(ids);
  return share <= LOOPS_ABOVE || !ids.some(Boolean) ? "" : `The text repeats itself: ${(100 * share).toFixed(0)} % of it copies what stands `
    + "right before. That is easy to guess.";
}

function ratioNoise(plain, other) {
  const errors = [relativeError(plain), relativeError(other)];
  return errors.includes(null) ? null : NORMAL_95 * Math.hypot(...errors);
}

function isNoise(speedup, noise) { return noise !== null && Math.abs(Math.log(speedup)) <= noise; }

function relativeError(steps) {
  const kinds = new Map();
  for (const step of steps) {
    const kind = `${step.width} ${numDrafted(step)}`;
    kinds.set(kind, [...kinds.get(kind) ?? [], stepSeconds(step)]);
  }
  const variance = (times) =>
    sum(times.slice(1).map((time, i) => (time - times[i]) ** 2)) / (2 * (times.length - 1));
  const known = [...kinds.values()].filter((times) => times.length > 1);
  if (!known.length) return null;
  const pooled = sum(known.map((times) => (times.length - 1) * variance(times)))
    / sum(known.map((times) => times.length - 1));
  const total = sum([...kinds.values()].map(sum));
  const all = sum([...kinds.values()].map((times) => times.length * (times.length > 1 ? variance(times) : pooled)));
  return total > 0 ? Math.sqrt(all) / total : null;
}

// How the clocks of a race ran, and what stands beside a ratio of two clocks.
const IN_TURNS = "The lanes take turns on one device, a step at a time, and the next step goes to the lane whose clock is "
  + "behind. Each clock is the lane's own time.";
const TAKEN_HERE = "Times are taken here, when text arrives, so the way to the server is in them.";
const ON_SERVERS = [`Each lane was decoded on its server, all at once. ${TAKEN_HERE}`,
  `The lanes were decoded on their servers, one after the other. ${TAKEN_HERE}`];
const ELSEWHERE = "as fast as plain, by a server's clock";
const TWO_CLOCKS = "The plain lane ran here, this one on a server, as a rule on another device: two clocks, two times.";

function clockWords(header) {
  if (isOfServers(header)) return ON_SERVERS[header.spec?.solo ? 1 : 0];
  const places = header.places?.sentence;
  return places ? `${IN_TURNS} ${oneLine(places).slice(0, 400)}.` : IN_TURNS;
}
