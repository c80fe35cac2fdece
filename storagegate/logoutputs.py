"""
What the lines of the log are written to, without ever waiting for it: a pipe, a terminal, a socket
such as systemd's, or a file that is moved aside when it has become large.
"""

import os
import select
import socket
import stat

PIECE_BYTES = 4096
"""
What a pipe takes whole or not at all (C{PIPE_BUF} of Linux): so lines of several processes stay
apart.
"""

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
        self._isFile = False
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
        else:
            self._isFile = True

    def write(self, data: memoryview) -> int:
        """
        Write what there is room for now.

        @raise OSError: If it cannot be written to.
        """
        try:
            if not self._isFile and len(data) > PIECE_BYTES:
                data = _lines(data)
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT)
            if self._mayBlock and not select.select([], [self._descriptor], [], 0)[1]:
                return 0
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0


def _lines(data: memoryview) -> memoryview:
    """Give the whole lines at the beginning that fit into a piece; what is longer is cut."""
    end = bytes(data[:PIECE_BYTES]).rfind(b"\n")
    return data[: end + 1 or PIECE_BYTES]


class FileOutput:
    """
    A file that lines are appended to.

    It may be moved away by others at any time: a new one is begun then. Several processes may
    append to one file.

    @ivar path: Its name.
    @ivar descriptor: The open file, for processes to inherit.
    @ivar isTurned: Set it to have the file moved aside before the next line, as C{twistd} does on
        SIGUSR1.
    """

    def __init__(
        self,
        path: str,
        limit: int = ROTATE_BYTES,
        kept: int = KEPT_FILES,
        descriptor: int | None = None,
    ) -> None:
        """
        @param limit: From this size on the file is moved aside.
        @param kept: How many of those are kept: C{path.1} is the newest.
        @param descriptor: The file as another process has opened it, which is also the one that
            moves it.
        @raise OSError: If it cannot be opened.
        """
        # twistd changes its directory.
        self.path = os.path.abspath(path)
        self._limit = limit
        self._kept = kept
        self._mayMove = descriptor is None
        self.isTurned = False
        self.descriptor = self._open() if descriptor is None else descriptor

    def write(self, data: memoryview) -> int:
        """
        Write to the file that has the name now.

        @raise OSError: If the disk is full, or fails.
        """
        self._follow()
        return os.write(self.descriptor, data)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        # What a daemon logs is for its own user and group.
        return os.open(self.path, flags, 0o640)

    def _follow(self) -> None:
        """Begin a new file if this one was moved, or is large enough to be."""
        mine = os.fstat(self.descriptor)
        if self._mayMove and mine.st_size and (self.isTurned or mine.st_size >= self._limit):
            self.isTurned = False
            self._moveAside()
        try:
            theirs: os.stat_result | None = os.stat(self.path)
        except OSError:
            theirs = None
        if theirs is None or not os.path.samestat(mine, theirs):
            try:
                descriptor = self._open()
            except OSError:
                # The directory is not ours any more: the file that is open is better than none.
                return
            # The number stays, for workers that are started later inherit it.
            os.dup2(descriptor, self.descriptor, inheritable=False)
            os.close(descriptor)

    def _moveAside(self) -> None:
        try:
            for number in range(self._kept, 0, -1):
                older = self.path if number == 1 else f"{self.path}.{number - 1}"
                if os.path.exists(older):
                    os.replace(older, f"{self.path}.{number}")
        except OSError:
            # It grows on: to write matters more than to move.
            return
