// The end of an exported page's program: its one race is unpacked, checked and opened like any file, and below it stands
// how to check it.

async function openOwn() {
  const bytes = Uint8Array.from(atob(document.getElementById("recording").textContent), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  if (!openText(await new Response(stream).text(), "The race of this page")) return;
  const { created, commit, device, model, versions, stopped } = S.recording;
  S.status = { text: `Recorded on ${device.name}${stopped ? "; the race was stopped" : ""}.`, share: null };
  const about = document.getElementById("about"), [facts, check] = about.querySelectorAll("p");
  const version = (name) => (Object.hasOwn(versions, name) ? `, ${name} ${versions[name]}` : "");
  facts.textContent = oneLine(`Recorded ${created} on ${device.name}: ${model.name} in ${model.dtype}`
    + `${version("torch")}${version("transformers")}; Photofinish ${commit ? `commit ${commit}` : "of unknown commit"}.`);
  check.querySelector("code").textContent = `python -m engine verify ${fileName("json")}`;
  about.hidden = false;
  schedule();
}

element.hidden = false;
openOwn().catch(() => board.alert("This browser cannot unpack the race: it needs one of 2024 or later."));
