// The gain that drafts still bring if several users share the device, computed from what its steps cost at each width.
// Twin of engine/analysis/sharing.py, which has the formulas; compared by test_sharing_is_that_of_the_engine. Of its
// two ways to draft for several users this is the dearer one, one draft after another. Pure: no DOM.

import { sum } from "../base/model.js";
import { numDrafted } from "../base/steps.js";

const MOST_USERS = 64;
const isAmount = (value, most) => typeof value === "number" && value > 0 && value <= most;

// {users, plainS, gain, isMeasured} for 1 to MOST_USERS users, or for `users`; empty if fewer than two widths were
// measured. plainS: seconds of a plain step, which writes a token for each user; isMeasured: whether steps of that many
// rows were. steps: of the lane; its figures come from a stranger's header.
export function sharedBy({ widths, roofline }, steps, users = Array.from({ length: MOST_USERS }, (_, i) => i + 1)) {
  const known = Object.entries(widths?.step_s ?? {}).filter(([width, seconds]) => /^[1-9]\d?$/.test(width)
    && isAmount(seconds, 1e7)).map(([width, seconds]) => [Number(width), seconds]);
  if (known.length < 2 || !steps.length) return [];
  const { cache_bytes: bytes, bandwidth_bytes_per_s: bandwidth } = roofline ?? {};
  const cacheS = isAmount(bytes, 1e18) && isAmount(bandwidth, 1e18) ? bytes / bandwidth : 0;
  const rows = 1 + sum(steps.map(numDrafted)) / steps.length, most = Math.max(...known.map(([width]) => width));
  const tokens = sum(steps.map((step) => step.token_ids.length)) / steps.length;
  const draftS = sum(steps.map((step) => step.draft_s)) / steps.length;
  return users.map((n) => {
    const caches = (n - 1) * cacheS, plainS = secondsAt(known, n) + caches;
    return { users: n, plainS, gain: tokens * plainS / (secondsAt(known, n * rows) + caches + n * draftS),
      isMeasured: n * rows <= most };
  });
}

function secondsAt(known, rows) {
  const costs = [];
  for (const [, seconds] of known) costs.push(Math.max(seconds, costs.at(-1) ?? 0));
  if (rows <= known[0][0]) return costs[0];
  const above = known.findIndex(([width]) => width >= rows), i = above < 0 ? known.length - 1 : above;
  const [[low], [high]] = known.slice(i - 1, i + 1);
  return costs[i - 1] + (costs[i] - costs[i - 1]) / (high - low) * (rows - low);
}
