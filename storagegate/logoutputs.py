"""
What the lines of the log are written to, without ever waiting for it: a pipe, a terminal, a socket
such as systemd's, or a file that is moved aside when it has become large.
"""

import os
import select
import socket
import stat

PIECE_BYTES = 4096
"""What a pipe that has room at all takes without waiting (C{PIPE_BUF} of Linux)."""

ROTATE_BYTES = 100_000_000
"""A log file of this size is moved aside: editors and mail still take it."""

KEPT_FILES = 5
"""So many that were moved aside are kept: half a gigabyte, which a small disk has left."""


class DescriptorOutput:
    """An open descriptor that others may hold as well, so that its own flags stay as they are."""

    def __init__(self, descriptor: int) -> None:
        """
        @param descriptor: Stays open, and stays the caller's.
        """
        self._descriptor = descriptor
        self._socket: socket.socket | None = None
        self._mayBlock = False
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(descriptor))
        elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            # Opened once more, it has flags of its own.
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            try:
                self._descriptor = os.open(f"/proc/self/fd/{descriptor}", flags)
            except OSError:
                # Somebody else's terminal, or no /proc.
                self._mayBlock = True

    def write(self, data: memoryview) -> int:
        """
        Write what there is room for now.

        @raise OSError: If it cannot be written to.
        """
        try:
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT)
            if self._mayBlock:
                if not select.select([], [self._descriptor], [], 0)[1]:
                    return 0
                data = data[:PIECE_BYTES]
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0


class FileOutput:
    """
    A file that lines are appended to.

    It may be moved away by others at any time: a new one is begun then. Several processes may
    append to one file.

    @ivar isTurned: Set it to have the file moved aside before the next line, as C{twistd} does on
        SIGUSR1.
    """

    def __init__(
        self,
        path: str,
        limit: int = ROTATE_BYTES,
        kept: int = KEPT_FILES,
        mayMove: bool = True,
    ) -> None:
        """
        @param limit: From this size on the file is moved aside.
        @param kept: How many of those are kept: C{path.1} is the newest.
        @param mayMove: Whether this process is the one that moves it.
        @raise OSError: If it cannot be opened.
        """
        # twistd changes its directory.
        self._path = os.path.abspath(path)
        self._limit = limit
        self._kept = kept
        self._mayMove = mayMove
        self.isTurned = False
        self._descriptor = self._open()

    def write(self, data: memoryview) -> int:
        """
        Write to the file that has the name now.

        @raise OSError: If the disk is full, or fails.
        """
        self._follow()
        return os.write(self._descriptor, data)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        # What a daemon logs is for its own user and group.
        return os.open(self._path, flags, 0o640)

    def _follow(self) -> None:
        """Begin a new file if this one was moved, or is large enough to be."""
        mine = os.fstat(self._descriptor)
        if self._mayMove and mine.st_size and (self.isTurned or mine.st_size >= self._limit):
            self.isTurned = False
            self._moveAside()
        try:
            theirs: os.stat_result | None = os.stat(self._path)
        except OSError:
            theirs = None
        if theirs is None or not os.path.samestat(mine, theirs):
            try:
                descriptor = self._open()
            except OSError:
                # The directory is not ours any more: the file that is open is better than none.
                return
            os.close(self._descriptor)
            self._descriptor = descriptor

    def _moveAside(self) -> None:
        try:
            for number in range(self._kept, 0, -1):
                older = self._path if number == 1 else f"{self._path}.{number - 1}"
                if os.path.exists(older):
                    os.replace(older, f"{self._path}.{number}")
        except OSError:
            # It grows on: to write matters more than to move.
            return
