"""Objects of the package that only the garbage collector can free."""

import gc
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import CoroutineType, FrameType, FunctionType, MethodType
from typing import Any


@contextmanager
def withoutCollector(case: Any) -> Iterator[None]:
    """
    Disable the garbage collector: objects are then freed only by reference counting.

    Collections skip the objects that exist at the start until the test ends. The first use in a
    test takes a full collection of a large process; later ones examine only new objects.
    """
    gc.collect()
    gc.freeze()
    case.addCleanup(gc.unfreeze)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def findCycles() -> list[str]:
    """
    Collect reference cycles, and describe the cycles with objects of the package.

    @return: The shortest cycle through each object of the package that is part of one, sorted.
    """
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return _describe(list(gc.garbage))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()


def _describe(garbage: list[Any]) -> list[str]:
    known = {id(each): each for each in garbage}
    found = set()
    seen: set[int] = set()
    for each in garbage:
        if id(each) not in seen and _isOwn(each):
            cycle = _cycleThrough(each, known)
            if cycle:
                seen.update(map(id, cycle))
                found.add(" -> ".join(map(_name, cycle)))
    return sorted(found)


def _cycleThrough(start: Any, known: dict[int, Any]) -> list[Any]:
    """Find the shortest path from an object to itself that does not pass a type."""
    before: dict[int, Any] = {}
    waiting = deque([start])
    while waiting:
        each = waiting.popleft()
        for other in gc.get_referents(each):
            if other is start:
                way = [each]
                while way[-1] is not start:
                    way.append(before[id(way[-1])])
                return way[::-1]
            if id(other) in known and id(other) not in before:
                before[id(other)] = each
                waiting.append(other)
    return []


def _isOwn(found: Any) -> bool:
    code = _codeOf(found)
    if code is not None:
        return "/storagegate/" in code.co_filename
    module = str(type(found).__module__)
    return not isinstance(found, type) and module.startswith(("storagegate", "autobahn"))


def _codeOf(found: Any) -> Any:
    if isinstance(found, FrameType):
        return found.f_code
    if isinstance(found, CoroutineType):
        return found.cr_code
    return found.__code__ if isinstance(found, FunctionType) else None


def _name(found: Any) -> str:
    code = _codeOf(found)
    if code is not None:
        return f"{type(found).__name__} {code.co_qualname}"
    if isinstance(found, MethodType):
        return f"method {found.__func__.__qualname__}"
    return type(found).__qualname__
