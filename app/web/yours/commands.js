// The names of saved results, and their commands.

import { shellQuoted } from "../base/text.js";

// What a result of that kind is saved as: with the model's own name and the minute.
export function savedName(kind, model, created) {
  const name = model.split("/").at(-1).replace(/[^\w.-]+/g, "-").slice(0, 60);
  return [kind, name, created?.slice(0, 16).replace(/[ T:]/g, "-")].filter(Boolean).join("_");
}

// A command, on the servers of these lanes: with their URLs if this tab's visitor named them, never with a key.
export function onServers(command, { urls = [], hasKey = false }, lanes) {
  const named = lanes.map((lane, i) => `--lane ${shellQuoted(`${lane}=openai:${urls.length === lanes.length ? urls[i] :
    `URL_${i + 1}`}`)}`);
  const key = hasKey && lanes.length ? 'OPENAI_API_KEY="$OPENAI_API_KEY" ' : "";
  return [`${key}python -m engine ${command}`, ...named].join(" ");
}
