// The server's copy of the race on the screen: figures and files are made from it. Uploading a file checks it.

import { trigger } from "../host.js";
import { fetchOurs, post } from "../base/dom.js";
import { board, S } from "./screen.js";

// Upload a recording (text or file) and return its key. Throws an Error that says why it is refused.
export async function send(body) {
  const { key, detail } = await post("recordings", body);
  if (detail) throw new Error(detail);
  return key;
}

// The key of the race on the screen. Uploads it again if the server no longer has it.
export async function served() {
  const now = S, answer = await fetchOurs(`recordings/${now.key}.json`, { method: "HEAD" });
  if (!answer.ok) now.key = await send(now.raw);
  return now.key;
}

// Ask for the figures of a tab, of the race and the lane on the right. request: its number.
export async function askForFiguresOf(tab, request) {
  try { trigger("select", { tab, request, key: await served(), lane: S.sides[1] }); } catch {
    board.alert("The server is not responding.");
  }
}
