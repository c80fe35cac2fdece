"""Directories that the kernel tells of changes in. Only Linux has this module's C{INotify}."""

from collections.abc import Callable
from typing import Any

from twisted.internet.inotify import INotify, INotifyError
from twisted.python.filepath import FilePath


class KernelWatch(INotify):
    """Watches directories."""

    def __init__(self, reactor: Any, changed: Callable[[bytes], object]) -> None:
        """
        @param changed: Called with the path of what has changed in some way.
        """
        super().__init__(reactor)
        self._changed = changed

    def add(self, directory: str) -> None:
        """Watch a directory, if it is there and the kernel has room for one more."""
        try:
            self.watch(FilePath(directory), callbacks=[self._tell])
        except INotifyError:
            pass

    def close(self) -> None:
        """End."""
        super().loseConnection()

    def loseConnection(self) -> None:
        """Do nothing: Twisted gives up when one of the directories has gone."""

    def _tell(self, watch: Any, path: Any, mask: int) -> None:
        self._changed(path.asBytesMode().path)


def watchByKernel(reactor: Any, changed: Callable[[bytes], object]) -> KernelWatch | None:
    """Begin to watch, see L{KernelWatch}; C{None} where the kernel or the reactor cannot."""
    try:
        watch = KernelWatch(reactor, changed)
        watch.startReading()
    except (INotifyError, NotImplementedError, AttributeError):
        return None
    return watch
