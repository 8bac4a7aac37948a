// What a visitor brings: the settings of a link, or the prompt typed last time. Values of controls in, and out again.
// Nothing is checked here: a race checks all of it.
(prompt, chat, drafter, k, temperature, top_p, seed, max_new_tokens, expectation) => {
  const asked = new URLSearchParams(location.search);
  const number = (name, value) => (asked.get(name)?.trim() && Number.isFinite(Number(asked.get(name))) ?
    Number(asked.get(name)) : value);
  let kept = null;
  try { kept = localStorage.getItem("photofinish.prompt"); } catch { /* a browser may forbid it */ }
  const text = asked.get("prompt") ?? kept ?? prompt, same = text === prompt && !asked.has("drafter");
  return [text, asked.has("prompt") ? asked.get("chat") === "true" : chat, asked.get("drafter") ?? drafter,
    asked.get("k") ?? k, number("temperature", temperature), number("top_p", top_p), number("seed", seed),
    number("max_new_tokens", max_new_tokens), same ? expectation : ""];
}
