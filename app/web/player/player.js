// An exported page: unpacks and shows its race, which was checked at export, and the command that verifies it.

import { element } from "../host.js";
import { oneLine } from "../base/text.js";
import { schedule } from "../board/paint.js";
import { board } from "../board/screen.js";
import { S } from "../board/state.js";
import { fileName, show } from "../files/files.js";
import "../main.js";

async function openOwn() {
  const bytes = Uint8Array.from(atob(document.getElementById("recording").textContent), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  show(await new Response(stream).text(), "The race of this page");
  const { created, commit, device, model, versions, stopped } = S.recording;
  S.status = { text: `Recorded on ${device.name}${stopped ? "; the race was stopped" : ""}.`, share: null };
  const about = document.getElementById("about"), [facts, check] = about.querySelectorAll("p");
  const version = (name) => (Object.hasOwn(versions, name) ? `, ${name} ${versions[name]}` : "");
  facts.textContent = oneLine(`Recorded ${created} on ${device.name}: ${model.name} in ${model.dtype}`
    + `${version("torch")}${version("transformers")}; Photofinish ${commit ? `commit ${commit}` : "unknown commit"}.`);
  check.querySelector("code").textContent = `python -m engine verify ${fileName("json")}`;
  about.hidden = false;
  schedule();
}

element.hidden = false;
openOwn().catch(() => board.alert("This browser is too old to unpack the race; use one from 2024 or later."));
