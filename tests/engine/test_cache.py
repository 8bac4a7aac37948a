"""The cache: the folder asked for, and JSON values that are whole or absent, whatever happens to the disk."""

from __future__ import annotations

import logging
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cache import ENVIRONMENT_VARIABLE, cache_dir, read_json, write_json


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    """The default model would land in a home folder that is too small, although another was asked for."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    assert cache_dir() == tmp_path / ".cache" / "photofinish"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "photofinish"
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "~/own")
    assert cache_dir() == tmp_path / "own"


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
        ),
        max_size=4,
    )
)
def test_cached_values_come_back(tmp_path_factory, value):
    """A probe would be trusted that says something else than what was measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path_factory.getbasetemp() / "json"))
        write_json("value.json", value)
        assert read_json("value.json") == value


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"a": 1', b"[" * 100_000])
def test_a_damaged_cached_value_is_none(tmp_path, monkeypatch, content):
    """A race would fail because an earlier one was killed."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    (tmp_path / "value.json").write_bytes(content)
    assert read_json("value.json") is None


def test_a_cache_that_cannot_be_written_fails_nothing(tmp_path, monkeypatch, caplog):
    """A read-only home folder would make every race fail; an interrupted write would leave files behind or a
    half-written value."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "file" / "cache"))
    with caplog.at_level(logging.WARNING):
        write_json("value.json", {"a": 1})
    assert "cannot keep value.json" in caplog.text and read_json("value.json") is None

    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    write_json("value.json", {"a": 1})
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    write_json("value.json", {"a": 2})
    assert read_json("value.json") == {"a": 1} and [p.name for p in (tmp_path / "cache").iterdir()] == ["value.json"]
