// The dialog "Your servers". The key leaves its field as soon as it is sent.

import { OWN } from "../host.js";
import { joined } from "../base/text.js";
import { refs } from "./box.js";
import { choose, connect, send } from "./door.js";

const KEPT = "kept in this program's memory";
let tried;                    // the number of the last try: other tabs of the owner try servers too
const text = (name) => refs[name].value.trim();

// The URLs as they are sent to, without a password. Twin of _with_scheme in app/page/doors.py.
const urls = () => ["url", "url2"].map(text).filter(Boolean).map((url) => {
  const whole = (url.includes("://") ? url : `http://${url}`).replace(/\/+$/, "").replace(/\/\/[^/]*@/, "//");
  return whole.split("/").length > 3 ? whole : `${whole}/v1`;
});

// What needs servers that were tried. A saved result of a load opens without any.
function enable(num) {
  refs.load.dataset.untried = !num;
  refs.checkup.disabled = num < 2;
  document.dispatchEvent(new CustomEvent("photofinish:tried"));
}

async function check() {
  const key = text("key");
  refs.key.value = "";
  if (key) refs.key.placeholder = KEPT;
  enable(0);
  heard(await send("servers", { url: text("url"), url2: text("url2"), model: text("model"), key,
    same_device: refs.same.checked }));
}

function heard(answer) {
  if (!answer) return;
  ({ tried } = answer);
  refs.use.disabled = !answer.can_race;
  enable(answer.can_race ?? 0);
  if (answer.can_race) refs.use.focus();
}

// A reloaded page no longer knows what it had tried.
async function opens() {
  if (OWN && !text("url") && !text("url2") && tried === undefined) heard(await send("servers", { again: true }));
}

// event: "submit" races them at once.
async function use(event) {
  const answer = await send("servers", { use: true, tried });
  if (!answer || answer.detail) return;
  window.photofinishServers = { urls: urls(), hasKey: refs.key.placeholder === KEPT };      // for copied commands
  choose(event);
}

function command() {
  const named = urls(), names = named.length === 1 ? ["there"] : ["baseline", "speculative"];
  const shown = named.length ? named : ["http://localhost:8000/v1", "http://localhost:8001/v1"];
  return joined(["python", "app.py", shown.map((url, i) => ["--lane", `${names[i]}=openai:${url}`]),
    "--model", text("model") || "NAME", ...(refs.same.checked ? ["--same-device"] : [])]);
}

connect({ check, use: () => use("submit"), command, opens }, "#page-servers-button");
refs.form.addEventListener("input", () => enable(0));
refs.load.addEventListener("click", async () => {
  if (refs.load.dataset.untried === "true") await opens();
  if (refs.load.dataset.untried === "false") use("select");
});
refs.checkup.addEventListener("click", () => use("select"));
enable(0);
