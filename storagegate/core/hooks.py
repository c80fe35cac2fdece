"""Functions of users that middleware asks about a request."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

Hook = Callable[[Any, Any], Any]


def requestHook(
    function: Callable[..., Any], name: str, first: str = "req", second: str = "res"
) -> Hook:
    """
    Make a function of C{(req, res)} from one that takes both, or the request alone.

    A second parameter that has a default is the function's own, unless it has the name: the
    C{default} of a dictionary's C{get} is no place for a response.

    @param name: The option that it was given as, for the error; so are the names of what it gets.
    @raise TypeError: If it is no such function.
    """
    if not callable(function):
        raise TypeError(f"{name} is a function of ({first}, {second}), not {function!r}")
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Some built-in functions do not tell.
        return function
    takesOne = _takes(signature, 1)
    if _takes(signature, 2) and not (takesOne and _isOwn(signature, second)):
        return function
    if takesOne:
        return lambda one, other: function(one)
    raise TypeError(f"{name} takes ({first}, {second}) or ({first})")


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _isOwn(signature: inspect.Signature, second: str) -> bool:
    parameters = list(signature.parameters.values())
    return len(parameters) > 1 and (
        parameters[1].kind is not inspect.Parameter.VAR_POSITIONAL and parameters[1].name != second
    )


def whenKnown(value: Any, proceed: Callable[[Any], Any]) -> Any:
    """
    Go on with a value, at once if it is here, or when what stands for it has been waited for.

    @return: What C{proceed} gives, or a coroutine that gives it.
    """
    if hasattr(value, "__await__"):
        return _later(value, proceed)
    return proceed(value)


async def _later(value: Awaitable[Any], proceed: Callable[[Any], Any]) -> Any:
    result = proceed(await value)
    return await result if hasattr(result, "__await__") else result
