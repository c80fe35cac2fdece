"""
Look-up and opening of files for responses.

L{readName} converts a URL path to a name: decoded once, split into segments, without segments that
could leave the directory. L{openCached} runs in the reactor and opens files in the kernel's cache;
L{openBelow} opens any file in a thread. Both follow links only within the root.

They call C{openat2(2)}, which Python lacks, for two flags. C{RESOLVE_CACHED} uses only the kernel's
cache of names and never waits for a disk, so a hot file needs no thread and takes 6 instead of 60
microseconds. C{RESOLVE_BENEATH} prevents C{..} and symbolic links from leaving the directory,
without a race between check and open.

Linux has C{openat2} since 5.6 and C{RESOLVE_CACHED} since 5.12; some sandboxes forbid them. Without
them L{openCached} opens nothing, and L{openBelow} uses L{openResolved}.
"""

import ctypes
import errno
import os
import re
import stat
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from attrs import define
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from storagegate.http.errors import HTTPError

OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Flags for opening files: a FIFO must not wait for its writer."""

_AT_FDCWD = -100
_RESOLVE_BENEATH = 0x08
_RESOLVE_CACHED = 0x20
_SYS_OPENAT2 = 437

# The architectures for which the system call number is known.
_SUPPORTED = sys.platform == "linux" and os.uname().machine in ("x86_64", "aarch64")

# EPERM: a sandbox. EINVAL: a kernel without RESOLVE_CACHED. EXDEV: the path leaves the root, or has
# an absolute link, which may stay inside: openResolved decides.
_UNDECIDED = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.EXDEV)


class _How(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


def _syscall(library: ctypes.CDLL) -> Callable[..., int]:
    function = library.syscall
    pointer = ctypes.POINTER(_How)
    function.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_char_p, pointer, ctypes.c_size_t)
    function.restype = ctypes.c_long
    return function


# A call that cannot block keeps the GIL: releasing it and getting it back from busy threads costs
# more than the call.
_quick = _syscall(ctypes.PyDLL(None, use_errno=True))
_slow = _syscall(ctypes.CDLL(None, use_errno=True))

_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_ANY_NOW = _How(OPEN_FLAGS, 0, _RESOLVE_CACHED)
_ROOT_NOW = _How(_DIRECTORY, 0, _RESOLVE_CACHED)
_BELOW_NOW = _How(OPEN_FLAGS, 0, _RESOLVE_CACHED | _RESOLVE_BENEATH)
_BELOW = _How(OPEN_FLAGS, 0, _RESOLVE_BENEATH)


def _openat2(function: Callable[..., int], directory: int, name: bytes, how: _How) -> int:
    if b"\0" in name:
        raise ValueError("embedded null byte")
    if not _SUPPORTED:
        raise OSError(errno.ENOSYS, "there is no openat2", os.fsdecode(name))
    descriptor = function(_SYS_OPENAT2, directory, name, how, ctypes.sizeof(how))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(name))
    return descriptor


_DOTFILES = ("allow", "deny", "ignore")

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")

# Backslashes too, as they separate directories on some systems.
_UP = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)")

# ENXIO is a socket. A name too long for the file system cannot exist.
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)

_WALK_FLAGS = _DIRECTORY | os.O_NOFOLLOW


@define(eq=False)
class OpenFile:
    """
    A regular file, open for reading.

    @ivar name: The path, for content types and callbacks.
    @ivar status: The result of C{fstat}.
    @ivar coding: The content coding of the file, or C{None}.
    """

    fd: int
    name: bytes
    status: os.stat_result
    coding: str | None = None

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)


class IsDirectory(Exception):
    """The path is a directory."""


def readName(path: str) -> str:
    """
    Convert the percent-encoded path of a URL to a name.

    @return: As L{relativeName}.
    @raise HTTPError: 400 for a malformed escape or a NUL, 403 for C{..}.
    """
    if "%" in path:
        if _BAD_ESCAPE.search(path):
            raise HTTPError(400, "Bad Request")
        try:
            path = unquote(path, errors="strict")
        except ValueError:
            raise HTTPError(400, "Bad Request") from None
    return relativeName(path)


def relativeName(path: str) -> str:
    """
    Convert a path without escapes to a name below a directory.

    @return: Segments joined by slashes, with a trailing slash kept. C{""} or C{"/"} is the
        directory itself.
    @raise HTTPError: 400 for a NUL, 403 for C{..}.
    """
    checkName(path)
    name = "/".join([part for part in path.split("/") if part and part != "."])
    return name + "/" if path.endswith("/") else name


def checkName(path: str) -> None:
    """
    Refuse paths with a NUL or C{..}.

    @raise HTTPError: 400 for a NUL, 403 for C{..}.
    """
    if "\0" in path:
        raise HTTPError(400, "Bad Request")
    if ".." in path and _UP.search(path):
        raise HTTPError(403, "Forbidden")


def readDotfiles(value: str) -> str:
    """
    Check the option C{dotfiles} of C{sendFile} and C{staticFiles}.

    @raise ValueError: If it is not C{allow}, C{deny} or C{ignore}.
    """
    if value not in _DOTFILES:
        raise ValueError(f'dotfiles is "allow", "deny" or "ignore", not {value!r}')
    return value


def checkDotfiles(name: str, dotfiles: str) -> None:
    """
    Refuse names in which a segment begins with a dot.

    @param dotfiles: As L{readDotfiles}.
    @raise HTTPError: 403 for C{deny}, 404 for C{ignore}.
    """
    if dotfiles != "allow" and (name.startswith(".") or "/." in name):
        if dotfiles == "deny":
            raise HTTPError(403, "Forbidden")
        raise HTTPError(404, "Not Found")


def httpErrorFor(error: IsDirectory | OSError) -> HTTPError | None:
    """
    Return the error response for a file that could not be opened; C{None} for a server error.

    @param error: The exception from L{openCached} or L{openBelow}.
    """
    if isinstance(error, IsDirectory) or error.errno in _MISSING:
        return HTTPError(404, "Not Found")
    return HTTPError(403, "Forbidden") if error.errno == errno.EXDEV else None


def openCached(root: bytes | None, name: bytes) -> OpenFile:
    """
    Open a file if the kernel has everything cached.

    @param root: The directory that C{name} is relative to and must not leave; C{None} if C{name} is
        absolute and may be anywhere.
    @param name: The path below C{root}, or absolute; empty for C{root} itself.
    @raise BlockingIOError: If only L{openBelow} can open it.
    @raise IsDirectory: For a directory.
    @raise OSError: As C{open} does.
    """
    try:
        if root is None:
            fd = _openat2(_quick, _AT_FDCWD, name or b".", _ANY_NOW)
        else:
            # Opened each time, for 2 microseconds, as the root may be a link that a deployment
            # changes.
            directory = _openat2(_quick, _AT_FDCWD, root, _ROOT_NOW)
            try:
                fd = _openat2(_quick, directory, name or b".", _BELOW_NOW)
            finally:
                os.close(directory)
    except OSError as error:
        if error.errno == errno.EAGAIN or error.errno in _UNDECIDED:
            raise BlockingIOError(errno.EAGAIN, "only a thread can open it") from None
        raise
    return _checked(fd, root, name)


def openBelow(root: bytes | None, name: bytes) -> OpenFile:
    """
    Open a file, which may wait for a disk. Called in a thread.

    The parameters are the same as for L{openCached}.

    @raise IsDirectory: For a directory.
    @raise OSError: As C{open} does; C{EXDEV} if the path leaves the root.
    """
    if root is None:
        return _checked(os.open(name, OPEN_FLAGS), root, name)
    try:
        directory = os.open(root, _DIRECTORY)
        try:
            fd = _openat2(_slow, directory, name or b".", _BELOW)
        finally:
            os.close(directory)
    except OSError as error:
        if error.errno not in _UNDECIDED:
            raise
        fd = openResolved(root, name)
    return _checked(fd, root, name)


def openResolved(root: bytes, name: bytes) -> int:
    """
    Open a file below a directory without C{openat2}. Links are resolved first; if the result is in
    the directory, its segments are opened one by one without following links. Called in a thread.

    @param name: The path below C{root}; with a trailing slash, only a directory is opened.
    @raise OSError: C{EXDEV} if the path leaves the root.
    """
    top = os.path.realpath(root, strict=True)
    target = os.path.realpath(os.path.join(top, name), strict=True)
    if os.path.commonpath((top, target)) != top:
        raise OSError(errno.EXDEV, "the file is not below the root", os.fsdecode(name))
    parts = os.path.relpath(target, top).split(b"/")
    # The resolved path has lost the trailing slash, which requires a directory.
    kind = os.O_DIRECTORY if name.endswith(b"/") else 0
    fd = os.open(top, _WALK_FLAGS)
    for number, part in enumerate(parts, 1):
        flags = _WALK_FLAGS if number < len(parts) else OPEN_FLAGS | os.O_NOFOLLOW | kind
        try:
            below = os.open(part, flags, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def inThread(
    run: Callable[..., Deferred[Any]], function: Callable[..., Any], *arguments: Any
) -> Deferred[Any]:
    """
    Open an object in a thread, and close it if its Deferred was cancelled in the meantime.

    @param run: See L{Runtime.run<storagegate.http.options.Runtime>}.
    @param function: Returns an object with C{close}.
    """
    waiting: Deferred[Any] = Deferred()

    def opened(file: Any) -> None:
        if waiting.called:
            file.close()
        else:
            waiting.callback(file)

    def failed(failure: Failure) -> None:
        if not waiting.called:
            waiting.errback(failure)

    run(function, *arguments).addCallbacks(opened, failed)
    return waiting


def _checked(fd: int, root: bytes | None, name: bytes) -> OpenFile:
    """Accept only a regular file, as reading any other could block or never end."""
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode):
        return OpenFile(fd, name if root is None else b"%b/%b" % (root, name), status)
    os.close(fd)
    if stat.S_ISDIR(status.st_mode):
        raise IsDirectory()
    raise FileNotFoundError(errno.ENOENT, "this is not a regular file", os.fsdecode(name))
