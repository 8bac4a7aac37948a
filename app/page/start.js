// What a visitor brings: the settings of a link, or those of this tab before it was loaded again, and the prompt typed
// last time. Values of controls in, and out again. Nothing is checked here: a race checks all of it.
(prompt, chat, drafter, k, temperature, top_p, seed, max_new_tokens, rule, expectation) => {
  const kept = (storage, name) => { try { return storage().getItem(name); } catch { return null; /* forbidden */ } };
  const link = new URLSearchParams(`${location.search}&${location.hash.slice(1)}`), linked = link.has("prompt");
  const asked = linked ? link : new URLSearchParams(kept(() => sessionStorage, "photofinish.settings") ?? "");
  const number = (name, value) => (asked.get(name)?.trim() && Number.isFinite(Number(asked.get(name))) ?
    Number(asked.get(name)) : value);
  const text = link.get("prompt") ?? kept(() => localStorage, "photofinish.prompt") ?? prompt;
  return [text, linked || asked.has("chat") ? asked.get("chat") === "true" : chat, asked.get("drafter") ?? drafter,
    asked.get("k") ?? k, number("temperature", temperature), number("top_p", top_p), number("seed", seed),
    number("max_new_tokens", max_new_tokens), asked.get("rule") ?? rule, text === prompt && !linked ? expectation : ""];
}
