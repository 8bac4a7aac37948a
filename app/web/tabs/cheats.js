// How demos cheat: switches that inflate this race's ratio as some demos do. The server computes the ratio for every
// combination (engine/analysis/inflate.py).

import { sum } from "../base/model.js";
import { make, oneLine, write } from "../base/text.js";
import { root } from "../board/root.js";
import { refs } from "../board/screen.js";

const switches = [...root.querySelectorAll("[data-cheat]")];
let inflated = {};

// now: as sent by app/figures/inflate.py; {} if unknown, which turns all switches off.
export function offerCheats(now) {
  inflated = now;
  refs.cheats.disabled = !inflated.ratios;
  for (const each of switches) each.checked &&= !refs.cheats.disabled;
  cheat();
}

function cheat() {
  const { names = [], ratios = [], exposed = [] } = inflated, times = (value) => `${value.toFixed(2)}\u00d7`;
  const bit = (node) => 1 << names.indexOf(node.dataset.cheat);
  const chosen = switches.filter((each) => each.checked), on = chosen.length > 0;
  refs.cheatRibbon.hidden = !on;
  refs.cheated.dataset.on = String(on);
  const ratio = ratios[sum(chosen.map(bit))], honest = ratios[0];
  write(refs.cheatRatio, ratio === undefined ? "–" : times(ratio));
  write(refs.cheatHonest, ratio === undefined ? "" : on ? `instead of the honest ${times(honest)}` :
    "as fast as Plain (honest)");
  for (const node of switches) {
    const { cheat: name } = node.dataset, words = root.querySelector(`[data-exposed="${name}"]`);
    words.hidden = !node.checked;
    if (words.hidden) continue;
    words.replaceChildren(make("strong", "pf-simulated", "SIMULATED"), " ",
      make("strong", "", `${times(ratios[bit(node)])} instead of ${times(honest)}.`), " ",
      oneLine(exposed[names.indexOf(name)]));
  }
}

for (const each of switches) each.addEventListener("change", cheat);
