"""Builds the tables of a finished race: each drafter proposes once after every committed token, while the target reads
the text once for all of them. Imports nothing heavy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ..analysis.costs import Costs, draft_costs, verify_costs
from ..core.errors import UsageError
from ..core.interfaces import Draft, Drafter
from ..core.spec import BASELINE, MAX_AUTO_K, SPECULATIVE, TREE, LaneSpec, RaceSpec, tree_size
from ..drafters import GREEDY, parse, serves_every_k, weightless
from ..drafters.auto import AutoDrafter, parts_of
from ..drafters.served import served_parts
from ..progress import Progress, silent
from ..text import Pieces
from .judged import MAX_WORK, WhatIf
from .tables import TREES, Table, Text, cut, table_name

if TYPE_CHECKING:
    from torch import Tensor

    from ..session import TorchRace
    from .odds import Odds

STAGE = "querying the drafters at every position"
Query = tuple[str, int | str]  # a drafter and the k to query it at
Look = Callable[["Tensor"], None]  # takes logits


def queries_of(spec: RaceSpec) -> list[Query]:
    """The drafters and k of a race's speculative lanes. Raises UsageError if one of them has no table, or if the race
    lacks a baseline or a lane that drafts."""
    lanes = [lane for lane in spec.lanes if lane.role == SPECULATIVE]
    for lane in lanes:
        serves_every_k(lane.drafter)
        if lane.rule != "coupled":
            raise UsageError(
                f"rule {lane.rule!r} of lane {lane.name!r} has no table of drafts by position: what it commits depends "
                "on what was drafted; choose rule coupled"
            )
    if not lanes or not spec.named(BASELINE):
        raise UsageError("tables need a race with a baseline and a lane that drafts")
    return [(lane.drafter, lane.k) for lane in lanes]


def what_if(
    race: TorchRace, queries: Iterable[Query] | None = None, progress: Progress = silent, most: int | None = None
) -> WhatIf:
    """Let drafters propose after every token that the race's baseline committed, as many tokens as its widest step can
    verify, or at most `most`. The race must be over; it does not change, and its lanes' clocks stand still. Each draft
    is what the drafter would propose there in a race, as far as rows are exact on this device (see `WidthPlan.exact`).

    queries: None for those of the race's lanes. At k auto or tree:N a drafter that rates tokens proposes trees. Another
        k matters only where drafts depend on it. A drafter that ends in GREEDY drafts at temperature 0; what would be
        kept of its drafts by probability is computed as well, unless it is a hybrid.
    progress: may raise to give up.

    Raises UsageError for a drafter without a table, RaceError if the device fails, and whatever a drafter raises."""
    from .odds import Odds

    (baseline,) = race.spec.named(BASELINE)
    text = Text(
        race.prompt.token_ids,
        tuple(token for step in race.lanes[baseline].steps for token in step.token_ids),
        race.spec.params.max_new_tokens,
    )
    queries = list(queries_of(race.spec) if queries is None else queries)
    widest = max(race.widths.plan.step_widths) - 1
    most = widest if most is None else min(most, widest)
    questions: dict[str, _Question] = {}
    with race.guard():
        for drafter, k in queries:
            size = max(MAX_AUTO_K, *(tree_size(asked) for name, asked in queries if name == drafter))
            if (drafter if isinstance(k, int) else table_name(drafter, TREES)) not in questions:
                question = _Question(race, drafter, k, size, most)
                questions.setdefault(question.name, question)
        drawn = [one for one in questions.values() if one.drafter.endswith(GREEDY) and one.drafter[:6] != "hybrid"]
        odds = [Odds(race, text, one, most) for one in drawn]
        _ask(race, text, [*questions.values(), *odds], most, progress)
    tables = {name: Table(name, question.drafter, tuple(question.drafts)) for name, question in questions.items()}
    costs = _costs(race, tables, {name: question.seconds for name, question in questions.items()})
    expected: dict[str, dict[str, dict[str, float]]] = {}
    for one in odds:
        expected.setdefault(one.drafter, {}).update(one.expected(costs))
    return WhatIf(text, tables, costs, expected)


def members(race: TorchRace, progress: Progress = silent) -> dict[str, Any]:
    """What the recording of a finished race stores of this: tables, the texts of their tokens, costs, and the oracle of
    each speculative lane. Empty if a lane did not finish. See `what_if`."""
    if not all(lane.state == "finished" for lane in race.lanes.values()):
        return {}
    computed = what_if(race, _with_served(race), progress)
    drafted = {token for table in computed.tables.values() for draft in table.drafts for token in draft.token_ids}
    pieces = Pieces(race.loaded.tokenizer, (), race.end_ids)
    lanes = [(lane.spec, lane.steps) for lane in race.lanes.values() if lane.spec.role == SPECULATIVE]
    return {
        **computed.to_json(),
        "table_pieces": {str(token): pieces.peek((token,))[0] for token in sorted(drafted)},
        "oracles": computed.shares(lanes),
    }


def _with_served(race: TorchRace) -> list[Query]:
    """The queries of the race, and chains of what servers can run of its drafters, if all can be read again."""
    queries = queries_of(race.spec)
    (baseline,) = race.spec.named(BASELINE)
    size = sum(len(step.token_ids) for step in race.lanes[baseline].steps) * max(race.widths.plan.step_widths)
    for drafter, k in dict.fromkeys(queries):
        for part in served_parts(race.loaded.info.name, drafter):
            how = GREEDY if race.spec.params.temperature and parse(part)[0] not in weightless() else ""
            fits = (len({*queries}) + 1) * size <= MAX_WORK
            if fits and (serves_every_k(part) or (how and part == drafter and isinstance(k, int))):
                queries.append((part + how, MAX_AUTO_K if serves_every_k(part) else k))
    return queries


class _Question:
    """Collects the drafts of one table, position by position. size: the most tokens of a tree; longest: of a chain.
    seconds: how long the drafts took, by their length. look: see `_hidden`."""

    look: Look | None = None

    def __init__(self, race: TorchRace, drafter: str, k: int | str, size: int, longest: int) -> None:
        plain = drafter.removesuffix(GREEDY)
        chains = longest if serves_every_k(plain) else k
        lane = LaneSpec(f"the table of {drafter}", plain, f"{TREE}{size}" if isinstance(k, str) else chains)
        made = race.build_drafter(lane, race.sampler if plain == drafter else race.sampler.greedy())
        is_tree = isinstance(k, str) and parts_of(made) is not None
        if is_tree:
            branches = race.lanes[race.spec.first(BASELINE)].target.takes_trees
            made = AutoDrafter(made, (1.0,) * (size + 1), branches, race.spec.params.temperature, size)
        self.drafter, self.made, self.name = drafter, made, _table_name(drafter, k, made)
        self.drafts: list[Draft] = []
        self.seconds: dict[int, list[float]] = {}

    def ask(self, token_ids: Sequence[int], hidden: Tensor | None, k: int) -> None:
        num = min(k, self.made.max_k)
        began = time.perf_counter()
        draft = self.made.propose(token_ids, hidden, num)
        self.seconds.setdefault(len(draft), []).append(time.perf_counter() - began)
        self.drafts.append(cut(draft, num))


def _table_name(drafter: str, k: int | str, made: Drafter) -> str:
    """The table that a lane drafts from. made: its drafter."""
    if tree_size(k) or isinstance(made, AutoDrafter):
        return table_name(drafter, TREES)
    if serves_every_k(drafter.removesuffix(GREEDY)):
        return drafter
    return table_name(drafter, k)


def _ask(race: TorchRace, text: Text, questions: Sequence[_Question | Odds], most: int, progress: Progress) -> None:
    layers = sorted({layer for question in questions for layer in question.made.hidden_layers})
    looks = [question.look for question in questions if question.look]
    is_read = layers or looks
    hidden = _hidden(race, text, layers, looks, lambda share: progress(STAGE, 0.0)) if is_read else repeat(None)
    rows = next(hidden)
    for question in questions:
        question.made.prefill(text.prompt_ids, _columns(rows, layers, question.made))
    for position in range(len(text.token_ids)):
        progress(STAGE, position / len(text.token_ids))
        token_ids, rows = (*text.prompt_ids, *text.token_ids[:position]), next(hidden)
        for question in questions:
            question.ask(token_ids, _columns(rows, layers, question.made), min(most, text.room(position)))


def _hidden(
    race: TorchRace, text: Text, layers: Sequence[int], looks: Sequence[Look], on_prefill: Callable[[float], None]
) -> Iterator[Tensor | None]:
    """The hidden states for the drafters' prefill, then for every position, as if each step committed one token. Steps
    have the exact lanes' widest width, so rows have the same bits as in every lane. Logits are left out, unless there
    are `looks`, which take them first, or that would change how linear layers compute (`Buffers.forward`)."""
    target = race.reader(layers, on_prefill)
    yield target.extend(text.prompt_ids[:-1], 0)[1]
    yield None
    read, width = (text.prompt_ids[-1], *text.token_ids), target.widths[-1]
    num_logits = width if looks or race.prepared.shape.linear is not None else 0
    for start in range(0, len(text.token_ids), width):
        block = read[start : start + width]
        logits, rows = target.extend((*block, *[0] * (width - len(block))), num_logits)
        for look in looks:
            look(logits)
        yield from [None] * width if rows is None else rows.split(1)


def _columns(rows: Tensor | None, layers: Sequence[int], drafter: Drafter) -> Tensor | None:
    """From rows [n, layers * dim], the layers that the drafter needs, in its order."""
    if rows is None or not drafter.hidden_layers:
        return None
    if tuple(layers) == drafter.hidden_layers:
        return rows
    by_layer = rows.view(len(rows), len(layers), -1)
    return by_layer[:, [layers.index(layer) for layer in drafter.hidden_layers]].flatten(1)


def _costs(race: TorchRace, tables: dict[str, Table], asked_s: Mapping[str, dict[int, list[float]]]) -> Costs:
    """Costs of steps come from all lanes, at the exact lanes' widths; costs of drafts from the lanes with that drafter:
    those that draft from the table or, without one, the others; without any, from the queries themselves, `asked_s`."""
    step_s = {width: race.widths.seconds[width] for width in race.widths.plan.step_widths}
    verify_s = verify_costs([step for lane in race.lanes.values() for step in lane.steps], step_s)
    draft_s = {}
    for table in tables.values():
        lanes = [lane for lane in race.lanes.values() if lane.spec.drafter == table.drafter.removesuffix(GREEDY)]
        own = [lane for lane in lanes if _table_name(table.drafter, lane.spec.k, lane.drafter) == table.name]
        times: dict[int, list[float]] = {}
        for step in [step for lane in own or lanes for step in lane.steps]:
            # a path takes about as many passes of the drafter as a chain of its length
            times.setdefault(step.num_drafted if own else step.depth, []).append(step.draft_s)
        times = times or asked_s[table.name]
        in_proportion = table.is_tree or serves_every_k(table.drafter.removesuffix(GREEDY))
        draft_s[table.name] = draft_costs(times, len(verify_s) - 1, in_proportion)
    return Costs(verify_s, draft_s)
