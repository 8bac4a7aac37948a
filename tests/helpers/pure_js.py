"""Modules of app/web that touch no page, run by V8 in this process, without a browser."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py_mini_racer import mini_racer

from app.web import CONSTANTS
from app.web.bundle import bundle


@contextmanager
def pure_js(*modules: str, **constants: Any) -> Iterator[Callable[..., Any]]:
    """What calls a JavaScript function, given as text, with values of JSON, and returns its value; None for undefined.
    It sees all that these modules declare and import; none may need an element of a page. constants: of a dialog."""
    with mini_racer() as engine:
        engine.eval(bundle(*modules, constants=CONSTANTS | constants))

        def call(function: str, *arguments: Any) -> Any:
            given = json.dumps(json.dumps(arguments))  # by JSON.parse: in a literal, __proto__ is no member
            answer = engine.eval(f"JSON.stringify(({function})(...JSON.parse({given})) ?? null)")
            assert isinstance(answer, str)
            return json.loads(answer)

        yield call
