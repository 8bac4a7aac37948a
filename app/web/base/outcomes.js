// What a study, a load and a check-up found out about servers in this tab, by kind: see yours/together.js.

export const outcomes = {};

// A caution for one race of servers of this model; "" if no texts were found to differ.
export function otherTexts(model) {
  const results = Object.values(outcomes).filter((result) => result?.model === model);
  const differing = results.find(({ others }) => others > 0);
  if (results.some(({ level }) => level === "fault"))
    return "In this tab the check-up found a fault of servers of this model: do not switch speculation on as it is.";
  return differing ? `In this tab ${differing.others} of ${differing.compared} other answers of servers of this model `
    + "differ: find out why before you switch speculation on." : "";
}
