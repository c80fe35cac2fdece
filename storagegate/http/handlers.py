"""What may be registered to handle requests, and how it is called."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

HandlerFunction = Callable[..., Any]
"""C{(req, res)}, C{(req, res, next)} or, for errors, C{(error, req, res, next)}."""

Handler = tuple[HandlerFunction, int]
"""A function, and with how many arguments it is called: 2, 3, or 4 for one that takes errors."""

ERROR_HANDLER = 4


def readHandler(function: Any) -> Handler:
    """
    Find out how a handler wants to be called.

    Parameters with a default do not count, but for a third one that is called C{next}.

    @raise TypeError: If it is no function, or takes another number of arguments.
    """
    if not callable(function):
        raise TypeError(f"a handler is a function, not {function!r}")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        # Some built-in functions do not tell.
        return function, 3
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    count = sum(p.default is p.empty for p in positional)
    if count == 2 and len(positional) > 2 and positional[2].name == "next":
        count = 3
    if count < 4 and any(p.kind is p.VAR_POSITIONAL for p in parameters):
        count = 3
    missing = any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
    if not 2 <= count <= 4 or missing:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"{name} takes neither (req, res), (req, res, next) nor (error, req, res, next)"
        )
    return function, count


def readHandlers(functions: Iterable[Any]) -> tuple[Handler, ...]:
    """
    Read handlers; lists of them may be nested.

    @raise TypeError: If one of them is no handler.
    """
    return tuple(readHandler(function) for function in _flatten(functions))


def _flatten(functions: Iterable[Any]) -> Iterator[Any]:
    for function in functions:
        if isinstance(function, list | tuple):
            yield from _flatten(function)
        else:
            yield function
