// A pair that this machine cannot run can be raced on servers: the commands, where Settings lists what is refused.

// Three commands of a pair: the plain server, the one with a drafter, and the race of both.
function remoteCommands({ target, drafter, k }) {
  const head = drafterOf(drafter), served = { ...head, ...modelOf(head.argument) };
  const [{ command }] = [vllmOf(modelOf(target), served, Number(k))].flat();
  const at = (port) => `openai:http://localhost:${port}/v1`;
  return [joined(["vllm", "serve", target, "--port", 8000]), `${command} --per-request-spec-decode-metrics detailed --port 8001`,
    joined(["python", "app.py", "--lane", `baseline=${at(8000)}`, "--lane", `speculative=${at(8001)}`, "--model", target])];
}

document.addEventListener("click", ({ target: button }) => {
  if (!button.matches?.(".page-remote")) return;
  const place = button.nextElementSibling, opens = !place.childElementCount;
  button.setAttribute("aria-expanded", String(opens));
  place.replaceChildren(...(opens ? remoteCommands(button.dataset).map((command) => make("pre", "", command)) : []));
  if (opens) place.append(make("span", "", "Each server needs room of its own. On one device start the race with "
    + "--same-device: then the lanes take turns."));
});
