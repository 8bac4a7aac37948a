"""How handlers answer: frames for the browser, and errors that it can show."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial, wraps
from typing import Any

import gradio as gr

from engine.core.errors import PhotofinishError

from ..jobs.studies import refused_study

Frames = AsyncGenerator[str, None]  # frames as JSON text


@contextmanager
def as_gradio_errors() -> Iterator[None]:
    """Turn this project's errors into gr.Error. Gradio shows its text as HTML, so markup is escaped."""
    try:
        yield
    except PhotofinishError as error:
        text = str(error).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        raise gr.Error(text, title="Cannot do that", print_exception=False) from error


def streamed(
    start: Callable[..., Awaitable[Frames]], refused: Callable[[str], str] | None = None
) -> Callable[..., Frames]:
    """A handler that yields the frames which `start` returns. A refusal is raised as gr.Error, unless `refused` makes
    it a frame too."""

    @wraps(start)
    async def handler(*arguments: Any, **values: Any) -> Frames:
        try:
            async with aclosing(await start(*arguments, **values)) as frames:
                async for frame in frames:
                    yield frame
        except PhotofinishError as error:
            if refused is None:
                with as_gradio_errors():
                    raise
            yield refused(str(error))

    return handler


streamed_study = partial(streamed, refused=refused_study)
