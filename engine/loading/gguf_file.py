"""Reads a GGUF file: its metadata, its table of tensors, and their values as float32.

The layout is llama.cpp's (ggml/docs/gguf.md, versions 2 and 3): a header, key-value pairs, the table, then the data.
The `gguf` package takes seconds to read a vocabulary of 262,144 words, hence this reader; the package still unpacks the
quantised blocks."""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
from numpy.typing import NDArray

MAGIC_AND_VERSION_BYTES = 8
ALIGNMENT = 32
CHUNK_VALUES = 1 << 23  # values unpacked at a time: 32 MB of float32
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of the file: `shape` in torch's order (last dimension contiguous), `start` and `num_bytes` of its
    data."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    start: int
    num_bytes: int


class GgufFile:
    """An open file, whole and of these versions: its package compares its sha256 first. `metadata` has every key, but
    only the length of arrays; `tensors` maps names to entries. Raises OSError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._position = MAGIC_AND_VERSION_BYTES
        num_tensors, num_keys = self._scalar("Q"), self._scalar("Q")
        self.metadata = {self._string(): self._value(self._scalar("I")) for _ in range(num_keys)}
        self.tensors = {entry.name: entry for entry in self._table(num_tensors)}

    def rows(self, name: str) -> Iterator[NDArray[np.float32]]:
        """A tensor's values in order, a few whole rows at a time: float32 arrays [some, shape[-1]]."""
        entry = self.tensors[name]
        row_length = entry.shape[-1]
        raw = np.frombuffer(self._data, np.uint8, entry.num_bytes, entry.start).reshape(
            prod(entry.shape) // row_length, -1
        )
        num_rows = max(1, CHUNK_VALUES // row_length)
        for first in range(0, len(raw), num_rows):
            yield dequantize(raw[first : first + num_rows], entry.kind)

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self._position)
        self._position += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        length = self._scalar("Q")
        start, self._position = self._position, self._position + length
        return self._data[start : self._position].decode()

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._scalar(_SCALARS[kind])
        item_kind, length = self._scalar("I"), self._scalar("Q")
        if item_kind == _STRING:
            for _ in range(length):
                skipped = self._scalar("Q")
                self._position += skipped
        else:
            self._position += length * struct.calcsize("<" + _SCALARS[item_kind])
        return length

    def _table(self, num_tensors: int) -> list[TensorEntry]:
        rows = []
        for _ in range(num_tensors):
            name, num_dimensions = self._string(), self._scalar("I")
            shape = tuple(reversed([self._scalar("Q") for _ in range(num_dimensions)]))
            rows.append((name, shape, GGMLQuantizationType(self._scalar("I")), self._scalar("Q")))
        alignment = self.metadata.get("general.alignment", ALIGNMENT)
        data_start = -(-self._position // alignment) * alignment
        entries = []
        for name, shape, kind, offset in rows:
            block, block_bytes = GGML_QUANT_SIZES[kind]
            entries.append(TensorEntry(name, shape, kind, data_start + offset, prod(shape) // block * block_bytes))
        return entries
