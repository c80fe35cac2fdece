"""File operations that are counted, and fail on demand."""

import errno
import os
from collections.abc import Callable
from threading import Lock
from typing import Any

from attrs import frozen

from storagegate.storage.files import Files

READING = frozenset({"openForReading", "read", "names", "size", "space", "dropCache"})
"""Operations that change nothing."""

CHANGING = frozenset(
    {
        "create",
        "write",
        "sync",
        "openDirectory",
        "syncDirectory",
        "close",
        "link",
        "unlink",
        "makeDirectory",
    }
)


@frozen
class Fault:
    """
    An injected fault.

    @ivar at: The number of the operation, from 1.
    @ivar code: The error; 0 makes a write short instead, and does not affect other operations.
    @ivar sticky: Whether all later operations fail too.
    @ivar lands: Whether the operation is performed before the error is raised.
    @ivar only: The affected operations; all operations are counted.
    """

    at: int
    code: int = errno.EIO
    sticky: bool = False
    lands: bool = False
    only: frozenset[str] = CHANGING


class FaultyFiles(Files):
    """
    L{Files} with a counter. Descriptors are closed even if C{close} fails.

    @ivar calls: Name and arguments of each operation so far.
    @ivar opened: The open descriptors.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.fault: Fault | None = None
        self.opened: set[int] = set()
        self._count = 0
        self._lock = Lock()

    def namesCalled(self) -> list[str]:
        """Return the names of the operations so far."""
        return [name for name, _ in self.calls]

    def arm(self, fault: Fault | None) -> None:
        """Restart the count from 1, and set the fault."""
        self._count = 0
        self.fault = fault

    @property
    def count(self) -> int:
        """The number of changing operations since the last L{arm}."""
        return self._count

    def attempt(self, name: str, method: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Perform one operation, or fail it."""
        with self._lock:
            self.calls.append((name, args))
            fault = self._due(name)
        if fault is None:
            return self._do(name, method, args)
        if not fault.code:
            return (
                method(self, args[0], [_half(args[1])])
                if name == "write"
                else self._do(name, method, args)
            )
        if fault.lands or name == "close":
            result = self._do(name, method, args)
            if name in ("create", "openForReading", "openDirectory"):
                self._do("close", Files.close, (result,))
        raise OSError(fault.code, os.strerror(fault.code))

    def _due(self, name: str) -> Fault | None:
        fault = self.fault
        if name not in CHANGING:
            return fault if fault is not None and name in fault.only else None
        self._count += 1
        if fault is None or name not in fault.only:
            return None
        if self._count == fault.at or (fault.sticky and self._count > fault.at):
            return fault
        return None

    def _do(self, name: str, method: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        result = method(self, *args)
        if name in ("create", "openForReading", "openDirectory"):
            self.opened.add(result)
        elif name == "close":
            self.opened.discard(args[0])
        return result


def _half(buffers: list[Any]) -> memoryview:
    whole = b"".join(buffers)
    return memoryview(whole)[: (len(whole) + 1) // 2]


def _counted(name: str) -> Callable[..., Any]:
    method = getattr(Files, name)

    def call(self: FaultyFiles, *args: Any) -> Any:
        return self.attempt(name, method, args)

    return call


for _name in READING | CHANGING:
    setattr(FaultyFiles, _name, _counted(_name))
