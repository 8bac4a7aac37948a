// Commands to race a pair on servers that this machine cannot run, in Settings' list of such pairs.

import { make } from "../base/text.js";
import { drafterOf, joined, modelOf, vllmOf } from "./production.js";

// Three commands: the plain server, the one with a drafter, and their race.
function remoteCommands({ target, drafter, k }) {
  const head = drafterOf(drafter), served = { ...head, ...modelOf(head.argument) };
  const [{ command }] = [vllmOf(modelOf(target), served, Number(k))].flat();
  const lane = (name, port) => ["--lane", `${name}=openai:http://localhost:${port}/v1`];
  return [joined(["vllm", "serve", target, "--port", 8000]),
    `${command} --per-request-spec-decode-metrics detailed --port 8001`,
    joined(["python", "app.py", lane("baseline", 8000), lane("speculative", 8001), "--model", target])];
}

document.addEventListener("click", ({ target: button }) => {
  if (!button.matches?.(".page-remote")) return;
  const place = button.nextElementSibling, opens = !place.childElementCount;
  button.setAttribute("aria-expanded", String(opens));
  place.replaceChildren(...(opens ? remoteCommands(button.dataset).map((command) => make("pre", "", command)) : []));
  if (opens) place.append(make("span", "", "Each server needs its own memory. If they share a device, add "
    + "--same-device, so the lanes take turns."));
});
