// The browser's Back closes what was opened last (a panel, a tab, the stage) instead of leaving the page. All entries
// that this adds to the browser's history are alike, so only their number matters, and one that is no longer needed
// serves what is opened next.

const MARK = "photofinish";
const entriesNow = () => window.history.state?.[MARK] ?? 0;
const backs = { open: [], entries: entriesNow() };

// From now on Back calls `close`, unless `closed` was called with it.
export function opened(close) {
  if (backs.open.includes(close)) return;
  backs.open.push(close);
  if (backs.open.length <= backs.entries) return;
  window.history.pushState({ ...window.history.state, [MARK]: backs.open.length }, "");
  backs.entries = backs.open.length;
}

export function closed(close) { backs.open = backs.open.filter((entry) => entry !== close); }

// Show a dialog that Back closes.
export function showModal(dialog) {
  const close = () => dialog.close();
  dialog.addEventListener("close", () => closed(close), { once: true });
  dialog.showModal();
  opened(close);
}

function onBack() {
  const left = entriesNow(), num = backs.entries - left;
  backs.entries = left;
  if (num <= 0) return;                         // Forward opens nothing
  const [last] = backs.open.slice(-1);
  if (last) { closed(last); last(); } else window.history.go(-left - 1);      // nothing is open: leave the page
}

window.addEventListener("popstate", onBack);
