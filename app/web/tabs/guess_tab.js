// "Be the drafter" on the page, in place of the texts, which would give the answer away. The room's tally is kept in
// this browser, by race.

import { closed, opened, remember, rememberedJson } from "../base/dom.js";
import { drafterName, isIdentical, joinCharacters, make, percent, plural, put, putText, tableRow, times,
  write } from "../base/text.js";
import { quotient, tokensOf } from "../base/model.js";
import { stopAutoplay } from "../board/deck.js";
import { committedOf, tokenNode } from "../board/lanes.js";
import { on, refs, replay, root, S, verdictOn } from "../board/screen.js";
import { choose } from "../board/tabs.js";
import { added, bestLengths, longerToken, NO_STEPS, Round, speedOf, STEPS_A_ROUND, tallyOf } from "./guess.js";
import { quoted } from "./step.js";
import { WhatIf } from "./whatif.js";
import { answerNow, whatIfOf } from "./whatif_tab.js";

const ROOM_KEY = "photofinish.room";
const rules = () => `Type what the model writes next, at most ${game.round.most} tokens, and press Enter. Right tokens `
  + "are kept; the first wrong one and all after it are struck out. Spaces and line breaks are filled in.";
const PROMPT_LETTERS = 600;       // shown from the end of the prompt
// S: the race that is played on, null if none; round: the player's; lengths: see bestLengths.
const game = { S: null, round: null, lengths: null };

// Why this race cannot be played, "" if it can.
function notPlayed() {
  if (S.live || !S.recording) return "Available after the race.";
  if (!isIdentical(verdictOn(S.sides[1]))) return "Only if both texts are identical.";
  const hasText = S.race.lane(S.sides[0])?.steps.every((step) => step.pieces.length);
  return hasText ? "" : "This race was recorded without its text.";
}

const rooms = () => rememberedJson(ROOM_KEY) ?? {};
const roomOf = () => rooms()[S.header.created] ?? { players: 0, from: 0, tallies: {} };

function beginGame() {
  choose("text");
  stopAutoplay();
  replay.pause();
  const whatIf = whatIfOf();
  Object.assign(game, { S, lengths: whatIf instanceof WhatIf ? bestLengths(whatIf) : new Map() });
  root.dataset.game = "on";
  opened(leaveGame);
  nextPlayer();
}

// Start a round where the last player stopped, or at the beginning.
function nextPlayer() {
  const pieces = S.race.lane(S.sides[0]).steps.flatMap((step) => step.pieces), { from } = roomOf();
  game.round = new Round(pieces, from < pieces.length ? from : 0, whatIfOf().costs?.verify_s);
  const before = game.round.pieces.slice(0, game.round.from).join(""), shown = S.header.prompt.text + before;
  refs.gameText.replaceChildren(putText(make("span", "pf-game-before"), [...shown].slice(-PROMPT_LETTERS).join("")));
  write(refs.gameSays, "");
  refs.gameTyped.value = "";
  drawGame();
  refs.gameTyped.focus();
}

export function leaveGame() {
  if (!game.S) return;
  if (game.S === S && !game.round.ended) endRound();
  game.S = null;
  delete root.dataset.game;
  closed(leaveGame);
}

function guessTyped() {
  const typed = refs.gameTyped.value.replaceAll("\r", "");
  if (!typed) return write(refs.gameNote, `Type at least one character. ${rules()}`);
  const step = game.round.guess(typed), words = make("span");
  words.append(...tokensOf(step).map(tokenNode));
  refs.gameText.append(words);
  joinCharacters([refs.gameText.firstChild, ...committedOf(refs.gameText)]);
  refs.gameTyped.value = "";
  write(refs.gameSays, stepHeard(step));
  if (game.round.over) endRound(); else drawGame();
  write(refs.gameNote, notesOn(step) || refs.gameNote.textContent);
  return undefined;
}

// What a player would not expect of a step, "" if there is nothing.
function notesOn(step) {
  const longer = longerToken(step), beyond = step.beyond.join("").trim();
  return [beyond && `At most ${game.round.most} guesses a step: ${quoted(beyond)} was not taken.`,
    longer && `${quoted(step.drafted[step.num_accepted])} began right, but the model's token is ${quoted(longer)}, one `
      + "piece. Only whole tokens count."].filter(Boolean).join(" ");
}

// A step's result, for screen readers.
function stepHeard(step) {
  const { drafted, num_accepted: kept, pieces } = step;
  const own = pieces[kept] === undefined ? "" : ` The model's own: ${quoted(pieces[kept])}.`;
  if (!drafted.length) return `No guess.${own}`;
  const struck = kept < drafted.length ? ` Struck out: ${quoted(drafted.slice(kept).join(""))}.` : "";
  return `Kept: ${kept} of ${drafted.length}.${struck}${own} ${notesOn(step)}`.trim();
}

// name -> tally, over the stretch that the player wrote.
function talliesNow() {
  const { round, lengths } = game, whatIf = whatIfOf();
  return { You: tallyOf(round.steps), ...Object.fromEntries([...lengths].map(([drafter, k]) =>
    [drafter, tallyOf(whatIf.steps(drafter, k, round.from, round.at))])) };
}

function endRound() {
  const now = talliesNow(), { players, tallies } = roomOf();
  game.round.ended = true;
  if (game.round.steps.length) {
    const all = Object.entries(now).map(([name, tally]) => [name, added(tallies[name] ?? NO_STEPS, tally)]);
    const room = { players: players + 1, from: game.round.at, tallies: Object.fromEntries(all) };
    remember(ROOM_KEY, JSON.stringify({ ...rooms(), [S.header.created]: room }));
  }
  drawGame();
  write(refs.gameSays, `${refs.gameSays.textContent} The round is over. ${lineOf("You", now)}`.trim());
  refs.gameNext.focus();
}

// "You 41 % of 22, n-gram 55 %, EAGLE-3 63 %".
function lineOf(who, tallies) {
  const rate = ({ kept, guessed }) => percent(quotient(kept, guessed));
  return [`${who} ${rate(tallies.You)} of ${tallies.You.guessed}`, ...[...game.lengths.keys()].filter((name) =>
    tallies[name]).map((name) => `${drafterName(name)} ${rate(tallies[name])}`)].join(", ");
}

function drawGame() {
  const { round, lengths } = game, { ended } = round, room = roomOf(), now = talliesNow();
  for (const name of ["gameTyped", "gameGuess", "gameNewline", "gameEnd"]) refs[name].disabled = Boolean(ended);
  refs.gameNext.hidden = !ended;
  refs.gameForget.hidden = !room.players;
  const plain = answerNow()?.plain.tokensPerS;
  const row = (title, tally = NO_STEPS) => tableRow([title], [
    tally.guessed ? `${percent(tally.kept / tally.guessed)} of ${tally.guessed}` : "–",
    quotient(tally.tokens, tally.steps)?.toFixed(2) ?? "–", times(speedOf(tally, plain))]);
  put(refs, { gameNote: ended ? "The next player goes on where this round stopped." : rules(),
    gameHead: ended ? "The round is over" : `Step ${round.steps.length + 1} of ${STEPS_A_ROUND}`,
    gameRoomLine: room.players ? lineOf(`All players (${plural(room.players, "round")})`, room.tallies) : "",
    gameScores: [row("You", now.You), ...[...lengths].map(([drafter, k]) =>
      row(`${drafterName(drafter)}, k = ${k}`, now[drafter])), row("All players", room.tallies.You)] });
  refs.gameText.scrollTop = refs.gameText.scrollHeight;
}

refs.gameBegin.addEventListener("click", beginGame);
refs.gameGuess.addEventListener("click", () => { guessTyped(); if (!game.round.ended) refs.gameTyped.focus(); });
refs.gameNewline.addEventListener("click", () => {
  refs.gameTyped.setRangeText("\n", refs.gameTyped.selectionStart, refs.gameTyped.selectionEnd, "end");
  refs.gameTyped.focus();
});
refs.gameEnd.addEventListener("click", endRound);
refs.gameNext.addEventListener("click", nextPlayer);
refs.gameForget.addEventListener("click", () => {
  remember(ROOM_KEY, null);
  drawGame();
  (game.round.ended ? refs.gameNext : refs.gameTyped).focus();
});
refs.gameLeave.addEventListener("click", () => { leaveGame(); refs.gameBegin.focus(); });
refs.game.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    event.stopPropagation();
    if (game.round.ended) refs.gameLeave.click(); else endRound();
  }
  if (event.key !== "Enter" || event.shiftKey || event.target !== refs.gameTyped) return;
  event.preventDefault();
  guessTyped();
});
on("leavingTab", leaveGame);
on("painted", () => {
  if (game.S && game.S !== S) leaveGame();       // another race is on the screen
  refs.gameBegin.title = notPlayed() || "Guess what the model writes next, against its drafters";
  refs.gameBegin.disabled = Boolean(notPlayed());
});
