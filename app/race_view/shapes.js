// The shapes that a value from a stranger may have: each throws Unusable, with one sentence, at a value that has not.

const Shapes = (() => {
const MAX_SECONDS = 1e7, MAX_TOKEN_ID = 2 ** 31 - 1, MAX_WIDTH = 64, MAX_NAME = 10000;

class Unusable extends Error {}

function shown(value) {
  if (value === undefined) return "missing";
  if (Array.isArray(value)) return "a list";
  if (value !== null && typeof value === "object") return "an object";
  return oneLine(JSON.stringify(typeof value === "string" ? value.slice(0, 60) : value));
}

const shape = (wanted, holds) => (value, where) => {
  if (!holds(value)) throw new Unusable(`${where} must be ${wanted}, not ${shown(value)}`);
};
const isCount = (value) => Number.isInteger(value) && value >= 0;
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const text = shape("a string", (value) => typeof value === "string");
const shortText = shape(`a string of at most ${MAX_NAME} characters`, (value) => typeof value === "string" &&
  value.length <= MAX_NAME);
const count = shape("a non-negative integer", isCount);
const number = shape("a finite number", (value) => typeof value === "number" && Math.abs(value) < 2 ** 63);
const time = shape(`a time from 0 to ${MAX_SECONDS} seconds`, (value) => typeof value === "number" && value >= 0 &&
  value <= MAX_SECONDS);
const flag = shape("true or false", (value) => typeof value === "boolean");
const width = shape(`an integer from 1 to ${MAX_WIDTH}`, (value) => isCount(value) && value >= 1 && value <= MAX_WIDTH);
const anyWidth = shape(`auto, fastest or an integer from 1 to ${MAX_WIDTH}`, (value) => value === "auto" ||
  value === "fastest" || (isCount(value) && value >= 1 && value <= MAX_WIDTH));
const token = shape(`a token id from 0 to ${MAX_TOKEN_ID}`, (value) => isCount(value) && value <= MAX_TOKEN_ID);
const maybe = (inner) => (value, where) => { if (value !== null) inner(value, where); };
const ifThere = (inner) => Object.assign((value, where) => inner(value, where), { ifThere: true });
const list = (inner, size) => (value, where) => {
  if (!Array.isArray(value) || (size !== undefined && value.length !== size))
    throw new Unusable(`${where} must be a list${size === undefined ? "" : ` of ${size}`}, not ${shown(value)}`);
  value.forEach((item) => inner(item, `${where}[]`));
};
const fields = (known) => (value, where) => {
  if (!isObject(value)) throw new Unusable(`${where} must be an object, not ${shown(value)}`);
  for (const [name, inner] of Object.entries(known)) {
    if (Object.hasOwn(value, name)) inner(value[name], where === "it" ? name : `${where}.${name}`);
    else if (!inner.ifThere) throw new Unusable(`${where} lacks ${name}`);
  }
};

return { MAX_SECONDS, MAX_TOKEN_ID, MAX_WIDTH, MAX_NAME, Unusable, shown, shape, isCount, isObject, text, shortText, count,
  number, time, flag, width, anyWidth, token, maybe, ifThere, list, fields };
})();
