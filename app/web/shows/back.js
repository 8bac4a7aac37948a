// The browser's Back closes what was opened last: it gets an entry in the history, which goes when it is closed by
// other means.

const back = { close: null, entry: false, leaving: false };

function addEntry() {
  if (!back.close || back.entry || back.leaving) return;
  history.scrollRestoration = "manual";       // what is closed scrolls the page back itself
  history.pushState(null, "");
  back.entry = true;
}

export function opened(close) {
  back.close = close;
  addEntry();
}

export function closed() {
  back.close = null;
  setTimeout(() => {              // unless something else is opened in its place
    if (back.close || !back.entry) return;
    Object.assign(back, { entry: false, leaving: true });
    history.back();
  }, 0);
}

window.addEventListener("popstate", () => {
  const { close, leaving } = back;
  back.leaving = false;
  history.scrollRestoration = "auto";
  if (leaving) return addEntry();
  Object.assign(back, { close: null, entry: false });
  return close?.();
});
