"""
State that each process of a program keeps for itself.

A program with several workers loses such state with each worker, and a client finds it only in the
worker that it happens to reach. An object that keeps state in memory, such as a store or a
middleware, declares this with three attributes::

    isPerProcess = True
    held = "sessions"
    sharedBy = "session(store=SQLiteSessionStore(path))"

The start of several workers logs one warning for each such object. An object without the attributes
keeps nothing, or shares it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def perProcessWarning(holder: object) -> str | None:
    """
    Return a warning about the state that an object keeps in the memory of one process.

    @param holder: A store, or a middleware: the function, or the method of an object.
    @return: One line; C{None} if processes share its state, or it has none.
    """
    owner: Any = getattr(holder, "__self__", holder)
    if not getattr(owner, "isPerProcess", False):
        return None
    return f"each worker has its own {owner.held}; to share them, use {owner.sharedBy}"


def holdsStateOf(function: F, store: object, held: str) -> F:
    """
    Declare that a middleware keeps its state in a store.

    @param function: The middleware, which gets the attributes of the store.
    @param held: The kind of the state, in the plural.
    """
    declared: Any = function
    declared.isPerProcess = getattr(store, "isPerProcess", False)
    declared.sharedBy = getattr(store, "sharedBy", "")
    declared.held = held
    return function
