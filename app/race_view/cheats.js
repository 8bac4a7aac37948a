// How demos cheat: switches that do to the ratio of this race what some demos do. Nothing is computed here: the server
// sends the ratio of every choice of switches (engine/cheats.py).

const switches = [...root.querySelectorAll("[data-cheat]")];
let inflated = {};

// now: of the race on the screen, as app/cheats.py tells it; {} while nobody knows, and then all switches are off.
function offerCheats(now) {
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
  write(refs.cheatHonest, ratio === undefined ? "" : on ? `instead of ${times(honest)}, which is honest` :
    "as fast as plain: honest");
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
