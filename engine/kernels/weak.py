"""Calls that do not keep alive the object whose method they call. Standard library only."""

import weakref
from collections.abc import Callable
from typing import Any


def weak_call(method: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """`partial(method, *arguments)` for an object that keeps the call itself. A bound method would make a cycle, and
    the graphs and caches behind it would wait for a garbage collection, possibly in the middle of the next race's
    capture."""
    function, owner = method.__func__, weakref.ref(method.__self__)  # type: ignore[attr-defined]
    return lambda: function(owner(), *arguments)
