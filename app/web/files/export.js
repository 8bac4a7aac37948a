// Downloads made by the server: a web page that plays the race offline, and its steps as a table.

import { board, refs } from "../board/screen.js";
import { served } from "../board/served.js";
import { S } from "../board/state.js";
import { download } from "./files.js";

async function save(form) {
  if (!S.raw) return undefined;
  try {
    const answer = await fetch(`recordings/${await served()}.${form}`);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return download(await answer.blob(), form);
  } catch {
    return board.alert("The server is not responding. Save the race as a file and run \u201cpython -m engine export "
      + "FILE\u201d later to get a web page or a table.");
  }
}

refs.savePage.addEventListener("click", () => save("html"));
refs.saveSteps.addEventListener("click", () => save("csv"));
