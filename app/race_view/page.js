// What the page around the race does by itself: which buttons can do something now, and the keys of the whole page.

const RACING = ["waiting", "preparing", "running"];
const pageButton = (name) => document.getElementById(`page-${name}-button`);

// A button that would do nothing looks like it.
function offer() {
  const racing = !S.fromFile && RACING.includes(S.state);
  for (const [name, useless] of [["race", racing], ["stop", !racing]]) {
    const button = pageButton(name);
    if (button && button.disabled !== useless) button.disabled = useless;
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    document.activeElement?.blur();         // Gradio takes a text over when its box is left
    pageButton("race")?.click();
  }
  if (event.key === "Escape") document.querySelector("#page-panel.open .toggle-button")?.click();
});
refs.liveHere.addEventListener("click", () => pageButton("race")?.click());
