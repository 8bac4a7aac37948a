"""A file of prompts, as it is published: from its bytes to a text, and from that to entries. Which form it has is said
by its name, or by how its text begins; what is neither is refused, never read as something else."""

import csv
import json
import re
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO, StringIO
from typing import Any

from ...core.errors import UsageError, in_a_line, short
from ...strict_json import decoded, gunzipped, parse
from ...text import MAX_PROMPT_CHARS

MAX_FILE_BYTES = 2 * 1024**3
# The first of FIELDS that an entry has is its prompt.
OPEN = ("conversations", "conversation")  # some of these have no turn of a person
FIELDS = ("prompt", "messages", "turns", *OPEN, "text", "question", "instruction", "input", "query")
HOLDERS = ("prompts", "rows", "data", "examples")  # names of a file's only list
KIND_KEYS = ("category", "kind", "task")
DETAIL_KEYS = ("input", "context")  # what an `instruction` is about (Alpaca, Dolly)
# Endings of names.
JSON_NAMES, LINES, CELLS = ("json", "jsonl", "ndjson"), ("", "txt", "text"), {"csv": ",;\t|", "tsv": "\t"}
OTHERS = "md", "yaml", "yml", "xml", "html", "xls", "xlsx", "doc", "docx", "pdf", "zip", "tar", "zst", "arrow"
READ = "JSON, JSON lines, CSV, TSV, Parquet, or .txt with one prompt a line; each also as .gz"
_ENDING, _TEXTS = re.compile(r"\.([a-z]\w*)$"), re.compile(r'\s*+\[\s*+"')
_HINT = re.compile(r'"?sep=([,;\t|]).*\n', re.IGNORECASE)  # a first line, for Excel
_MARKS = re.compile("^\ufeff+", re.MULTILINE)  # several: of files that were joined
_JSON = re.compile(r"\s*+(\{|\[\s*+\[?\s*+\{)")  # without going back: 3 million blanks would take hours


@dataclass(frozen=True)
class Entries:
    """What a file holds.

    form: what it was read as: JSON, JSON lines, CSV, TSV; "" if its text is prompts, not data.
    all: each by its number from 1, of the line where it begins or, in a JSON array, of the entry. A value of JSON, a
        text, or the UsageError that says why it is neither."""

    form: str
    all: list[tuple[int, Any]]
    place: str = "line"


def text_of(data: bytes, name: str, most: int) -> str:
    """The text of a file: unpacked if it is gzip, as JSON lines if it is Parquet. Raises UsageError for more than
    `most` bytes, for what is neither UTF-8 nor UTF-16 with its mark, and for a name that says another format."""
    data = gunzipped(data, most)
    if len(data) > most:
        raise UsageError(f"it has more than {most:,} bytes, the limit")
    ending = _ending(name)
    if data.startswith(b"PAR1") or ending == "parquet":
        return _of_parquet(data, most)
    if ending in OTHERS:
        raise _not_read(ending)
    return decoded(data)


def entries_of(text: str, name: str, whole: bool = False) -> Entries:
    """What the text of a file holds. CSV and TSV, with a header, if its name says so, or it begins with one that has
    tabs (Excel's "Unicode text"); JSON if its name says so or it begins like objects, or is a list of texts; else one
    prompt a line. Blank lines are skipped. Raises UsageError if there are no such entries, or if its name says another
    format.

    whole: all of the text is one prompt, unless it is data."""
    text, ending = _MARKS.sub("", text), _ending(name)
    header = text.partition("\n")[0].strip().lower()
    if ending in LINES and "\t" in header and {*FIELDS}.intersection(header.split("\t")):
        ending = "tsv"
    if ending in CELLS:
        return Entries(ending.upper(), _rows(text, ending))
    if ending in JSON_NAMES or _JSON.match(text) or (_TEXTS.match(text) and isinstance(_value(text), list)):
        return _of_json(text)
    if ending not in LINES:
        raise _not_read(ending)
    lines = _lines(text)
    return Entries("", [(1, text)] if whole and lines else lines)


def is_chat(value: Any) -> bool:
    """Whether it is a list of messages, not of entries."""
    messages = value if isinstance(value, list) else []
    return messages != [] and all(isinstance(m, dict) and "role" in m and m.keys().isdisjoint(FIELDS) for m in messages)


def _ending(name: str) -> str:
    ending = _ENDING.search(name.lower().removesuffix(".gz"))
    return ending[1] if ending else ""


def _not_read(ending: str) -> UsageError:
    return UsageError(f"a file with this ending (.{ending}) is not read; what is: {READ}")


def _lines(text: str) -> list[tuple[int, str]]:
    """The lines that are not blank, with their numbers."""
    lines = enumerate((line.rstrip("\r") for line in text.split("\n")), 1)
    return [(number, line) for number, line in lines if line.strip()]


def _value(text: str) -> Any:
    try:
        return parse(text.encode("utf-8", "surrogatepass"), MAX_FILE_BYTES, has_nan=True)  # Python writes it
    except UsageError as error:
        return error


def _of_json(text: str) -> Entries:
    """Lines of JSON, or one value, whose first line is incomplete or all there is: an object, a chat, or an array."""
    lines = _lines(text)
    one: Any = _value(lines[0][1]) if lines else None
    is_one = len(lines) == 1 or (isinstance(one, UsageError) and "is not JSON" in str(one))
    if is_one and len(lines) > 1:
        one = _value(text)
    if is_one and isinstance(one, dict) and one.keys().isdisjoint(FIELDS):
        one = next((one[name] for name in HOLDERS if isinstance(one.get(name), list)), one)
    if is_one and isinstance(one, list) and not is_chat(one):
        return Entries("JSON", list(enumerate(one, 1)), "entry")
    if is_one and not isinstance(one, UsageError):
        return Entries("JSON" if len(lines) > 1 else "JSON lines", [(lines[0][0], one)])
    values = [(number, _value(line)) for number, line in lines]
    if is_one and 2 * sum(isinstance(value, UsageError) for _, value in values) > len(values):
        raise one
    return Entries("JSON lines", values)


def _rows(text: str, ending: str) -> list[tuple[int, Any]]:
    """The rows below the header, as objects. Spreadsheets write into CSV what separates lists in their country."""
    csv.field_size_limit(16 * MAX_PROMPT_CHARS)
    hint = _HINT.match(text)
    delimiter = hint[1] if hint else max(CELLS[ending], key=text.partition("\n")[0].count)
    rows = text[hint.end() - 1 :] if hint else text  # the line's end stays: lines are counted
    reader = csv.reader(StringIO(rows, newline=""), delimiter=delimiter, strict=True)
    names, entries = list[str](), list[tuple[int, Any]]()
    while True:
        line = reader.line_num + 1
        try:
            if (cells := next(reader, None)) is None:
                return entries
        except csv.Error as error:
            entries.append((line, UsageError(f"it is no row of {ending.upper()}: {error}")))
            continue
        heads = [cell.strip().lower() for cell in cells]
        if any(cells) and (not names or sorted(heads) == sorted(names)):  # again: files were joined
            names = _columns(heads)
        elif any(cells):
            wrong = UsageError(f"its cells are {len(cells)}, not {len(names)} as in the header")
            entries.append((line, dict(zip(names, cells, strict=True)) if len(cells) == len(names) else wrong))


def _columns(names: list[str]) -> list[str]:
    """The names. Raises UsageError unless one of them is a prompt's, and none of these is there twice."""
    known = [name for name in names if name in FIELDS]
    if not known or len(known) > len(set(known)):
        columns = ", ".join(map(short, names[:20]))
        raise UsageError(f"its columns are {columns}; there must be one of {', '.join(FIELDS)}, each at most once")
    return names


def _of_parquet(data: bytes, most: int) -> str:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError("it is Parquet: pip install pyarrow to read it, or write it as JSON lines") from error
    lines, size = list[str](), 0
    try:
        file = parquet.ParquetFile(BytesIO(data))
        names = [name for name in _columns(file.schema_arrow.names) if name in FIELDS + KIND_KEYS + DETAIL_KEYS]
        for batch in file.iter_batches(16, columns=names):
            lines += [json.dumps(row) for row in batch.to_pylist()]
            if (size := size + sum(map(len, lines[-16:]))) > most:
                raise UsageError(f"it has more than {most:,} bytes, the limit")
    except UsageError:
        raise
    except Exception as error:  # of a library, on a stranger's file
        raise UsageError(f"it cannot be read as Parquet: {in_a_line(error)}") from error
    return "\n".join(lines)
