// The dialog "Your model".

import { joined } from "../base/text.js";
import { refs } from "./box.js";
import { choose, connect, send } from "./door.js";

const named = () => ({ target: refs.target.value.trim(), drafter: refs.drafter.value.trim() });

async function check() {
  const answer = await send("model", named());
  if (answer) refs.use.disabled = refs.checkup.disabled = Boolean(answer.detail);
}

async function use() {
  const answer = await send("model", { ...named(), use: true });
  if (answer && !answer.detail) choose("select");
}

function command() {
  const { target, drafter } = named();
  return joined(["python", "app.py", "--target", target || "owner/name", "--drafter", drafter || "ngram"]);
}

connect({ check, use, command }, "#page-model-button");
refs.form.addEventListener("input", () => { refs.checkup.disabled = true; });
refs.checkup.addEventListener("click", use);
