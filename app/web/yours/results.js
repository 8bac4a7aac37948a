// What "Try it on yours" has found out so far, by kind: a study of prompts, a load of servers, a check-up.

const RUNNING = ["asked", "waiting", "racing", "running"];
// state: idle, asked, or its frames'; frame: the last one; source: its prompts, null for the run's own; servers: their
// addresses, see `namedServers`; is: what it is of, see `subjectOf`
const none = () => ({ state: "idle", frame: null, source: null, servers: {}, is: null });
export const results = { study: none(), load: none(), checkup: none() };
export const KINDS = Object.keys(results);
// current: the kind that runs, ran last, or was opened last
export const latest = { current: "study" };

// What a frame is of: the servers' id, or the target; null if it does not say yet.
export function subjectOf(kind, { servers, report, ran_on: ranOn }) {
  return (kind === "study" && report?.said.on_servers ? ranOn?.machine : servers || report?.target) ?? null;
}
export const isRunning = (kind) => RUNNING.includes(results[kind].state);
export const running = () => KINDS.find(isRunning) ?? null;
const isShown = (kind) => results[kind].frame !== null
  && (kind === latest.current || (results[kind].is !== null && results[kind].is === results[latest.current].is));
export const shownKinds = () => KINDS.filter(isShown);
// What results say of servers; null by default, of other ones and of models on this machine.
export function saidOfServers(questions) {
  return Object.fromEntries(KINDS.map((kind) =>
    [kind, isShown(kind) && !isRunning(kind) ? questions[kind].summary(results[kind]) : null]));
}
