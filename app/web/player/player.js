// An exported page: unpacks and shows its race, which was checked at export, and the command that verifies it.

import "./parts.js";
import "../main.js";
import { oneLine } from "../base/text.js";
import { schedule } from "../board/paint.js";
import { S } from "../board/screen.js";
import { show } from "../files/files.js";
import { fileName } from "../files/result.js";

async function openOwn() {
  const bytes = Uint8Array.from(atob(document.getElementById("recording").textContent), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  show(await new Response(stream).text(), "The race of this page");
  const sheet = new window.CSSStyleSheet();              // no part of the page where a browser saves it
  sheet.replaceSync("#page { display: block; } #says { display: none; }");
  document.adoptedStyleSheets.push(sheet);
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

openOwn();
