"""Before any weights are loaded: whether a drafter fits its target, from configuration files and the shapes of tensors.

The faults are those seen in practice: heads without output layer or vocabulary map, for other layers or another
tokenizer. A server accepts most of them without a word, and then never keeps a guess."""

from collections.abc import Iterator, Mapping

from ..core.errors import UsageError, sentence
from ..drafters.model_kinds import difference
from ..heads.formats import NoHeadError, spec_of
from ..heads.head_spec import KINDS, HeadSpec
from ..heads.names import HeadName
from ..heads.shapes import OUTPUT, RESTORED, fitted, renamed, unpacked
from ..heads.vocabulary import TABLES, TensorInfo, by_offsets, marked, may_be_padding
from ..layers.published import DEFAULT_WORDS, quantised, refusal, text_part, unpacking
from ..remote.fields import find
from .files import Files
from .findings import Finding

ANOTHER = (
    "If the draft model was trained with the target's tokenizer, copy the target's tokenizer.json into its folder; "
    "otherwise use another one, as a rule of the target's family, and if you do not know, ask its publisher"
)
MAX_IDS = 12
# What an error of `fitted` contains -> which check of the head has failed, and the remedy.
REMEDIES = {
    "'s fc reads": ("tapped layers", "but its config.json names others: name all of them there, or with #aux="),
    f"lacks {OUTPUT}": ("output layer", f"Export the head again with {OUTPUT}: without it servers draft at random"),
    "no d2t table": ("vocabulary map", "Export the head again with d2t and t2d, from the run that chose its words"),
    "head embeds": ("vocabulary", "Use a head trained with this target's tokenizer"),
}
OTHERWISE = ("tensors", "Use a head that was trained for this target")


def target_findings(target: Files, what: str = "target") -> Iterator[Finding]:
    """Whether this engine can run the target at all, or what else the model is here."""
    if why := refusal(target.config):
        yield Finding("fault", what, f"The {what} {why}.", f"Choose another {what}")
    elif why := quantised(target.config):
        yield Finding("fault", what, f"The {what} {why}.", f"Choose the unquantised model, or another {what}")
    elif says := unpacking(target.config):
        yield Finding("ok", what, f"The {what} has {says}.")


def model_findings(draft: Files, target: Files) -> Iterator[Finding]:
    """A draft model against its target: do the same ids mean the same tokens?"""
    yield from target_findings(draft, "draft model")
    ours, theirs = target.vocabulary, draft.vocabulary
    if not ours or not theirs:
        return
    if says := difference(ours, theirs):
        yield Finding("fault", "vocabulary", f"The tokenizers differ: {says}.", ANOTHER)
        return
    sizes = _num_words(target), _num_words(draft)
    padded = "" if sizes[0] == sizes[1] else f"; {sizes[0]:,} and {sizes[1]:,} rows differ by padding alone"
    yield Finding("ok", "vocabulary", f"Both tokenizers have the same {len(ours):,} tokens{padded}.")


def head_findings(kind: str, name: HeadName, head: Files, target: Files) -> Iterator[Finding]:
    """A draft head against its target. Does not check what follows from a fault already found."""
    try:
        spec = _spec(kind, name, head, target)
    except UsageError as error:
        yield _unknown(kind, name, head, target, error)
        return
    states = ", ".join(map(str, spec.hidden_layers[:MAX_IDS]))
    yield Finding("ok", "format", f"A head of kind {kind}, reading hidden states {states}.")
    yield from _trained_for(head, target)
    if not head.tensors:
        yield Finding("ok", "tensors", "Their shapes are not known before the weights are downloaded.")
        return
    tensors = renamed(head.tensors)
    fault = _fault(spec, tensors, target)
    yield fault or Finding("ok", "tensors", "All are there, in the shapes that the target needs.")
    if fault is None:
        yield from _words(tensors, target)


def _spec(kind: str, name: HeadName, head: Files, target: Files) -> HeadSpec:
    num_layers = text_part(target.config).get("num_hidden_layers") or 0
    return spec_of(head.config, head.name, kind, num_layers, name)


def _unknown(kind: str, name: HeadName, head: Files, target: Files, error: UsageError) -> Finding:
    """The fault in a configuration that makes no head of this kind, by what would make one."""
    why = sentence(str(error))
    for candidate in KINDS:
        try:
            _spec(candidate, HeadName(name.source), head, target)
        except UsageError:
            continue
        if candidate != kind:
            change = f"Give it as --drafter {candidate}:{name.source or head.name}"
            return Finding("fault", "format", f"This is a head of kind {candidate}, not {kind}.", change)
        return Finding("fault", "format", why, "Leave out the options after #")
    if "hidden state" in why:
        change = "Use a head trained for this target, or name the hidden states it should read with #aux="
        return Finding("fault", "tapped layers", why, change)
    change = "Correct the head's config.json if that is a mistake in it; if not, this engine cannot run the head"
    if isinstance(error, NoHeadError):
        change = f"Check that this is a draft head, and which kind: {', '.join(KINDS)}, or a whole model (draft_model)"
    return Finding("fault", "format", why, change)


def _trained_for(head: Files, target: Files) -> Iterator[Finding]:
    """The target that the head names, if it names one."""
    stated = find(str, head.config, "speculators_config", "verifier", "name_or_path") or ""
    own, given = (name.rstrip("/").partition("@")[0].rpartition("/")[2].lower() for name in (stated, target.name))
    if not own:
        return
    if own == given:
        yield Finding("ok", "trained for", f"The head names {stated} as its target.")
    else:
        change = f"Use it with --target {stated}, or a head for {target.name}"
        yield Finding("doubt", "trained for", f"The head names {stated} as its target, not {target.name}.", change)


def _fault(spec: HeadSpec, tensors: Mapping[str, TensorInfo], target: Files) -> Finding | None:
    """What keeps these tensors from being a head for this target."""
    size, num_words = text_part(target.config).get("hidden_size") or 0, _num_words(target)
    reduced = spec.draft_vocab_size is not None and not may_be_padding(spec.draft_vocab_size, num_words)
    whole = dict(tensors)
    if OUTPUT not in tensors and spec.tied_output and reduced:  # borrowed from the target's embedding
        whole[OUTPUT] = TensorInfo((spec.draft_vocab_size or 0, spec.layers.hidden_size), RESTORED)
    try:
        fitted(spec, unpacked(whole), size, num_words)
        return None
    except UsageError as error:
        why = str(error)
    check, change = next((remedy for words, remedy in REMEDIES.items() if words in why), OTHERWISE)
    ids = tensors["d2t"].values if "d2t" in tensors else None
    if check == "tapped layers" and tensors["fc.weight"].shape[1] % size:
        check, change = "hidden size", f"Use a head for a target of hidden size {size}: no number of its states fits"
    elif check == "tapped layers":
        states = ",".join("N" * (tensors["fc.weight"].shape[1] // size))
        change = f"The head reads {len(states[::2])} hidden states, {change}{states}"
    elif "d2t leads" in why and ids and 0 <= min(ids) <= max(ids) < num_words and len({*ids}) == len(ids):
        check, change = "vocabulary map", "Subtract each row's number from d2t: it has the target's ids, not offsets"
    return Finding("fault", check, sentence(why), change)


def _words(tensors: Mapping[str, TensorInfo], target: Files) -> Iterator[Finding]:
    """How much of the vocabulary the head can draft, and whether both of its tables say so."""
    d2t, t2d = (tensors.get(table) for table in TABLES)
    if d2t is None or d2t.values is None:
        if d2t is None and t2d is not None:
            change = "Add d2t to the head's tensors"
            yield Finding("doubt", "vocabulary map", "There is t2d but no d2t, which vLLM and SGLang need.", change)
        return
    ids = by_offsets(d2t.values)
    if t2d is not None and t2d.values is not None and (has_row := marked(t2d.values)) != sorted(ids):
        says = f"d2t and t2d disagree: t2d marks {len(has_row):,} tokens, d2t leads to {len(ids):,} others."
        yield Finding("fault", "vocabulary map", says, "Export both tables again from the same training run")
        return
    yield Finding("ok", "vocabulary map", f"{len(ids):,} of {_num_words(target):,} tokens can be drafted.")


def _num_words(target: Files) -> int:
    return text_part(target.config).get("vocab_size") or DEFAULT_WORDS
