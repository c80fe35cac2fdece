"""
C{openat2(2)}, which Python does not have.

Two of its flags are worth it. C{RESOLVE_CACHED} opens what is in the kernel's cache of names and
refuses to wait for a disk, so a hot file needs no thread: 6 microseconds instead of 60.
C{RESOLVE_BENEATH} lets neither C{..} nor a symbolic link leave the directory, and nobody can swap
a link between a check and the opening.

Linux has it since 5.6, C{RESOLVE_CACHED} since 5.12; some sandboxes forbid it. Where it does not
work L{openNow} says that it cannot tell, and L{openBeneath} raises L{Unsupported}.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Callable

OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""How files are opened: a FIFO must not wait for its writer."""

_AT_FDCWD = -100
_RESOLVE_BENEATH = 0x08
_RESOLVE_CACHED = 0x20
_SYS_OPENAT2 = 437

# The number of the call was checked for these.
_SUPPORTED = sys.platform == "linux" and os.uname().machine in ("x86_64", "aarch64")

# EPERM: a sandbox. EINVAL: a kernel without RESOLVE_CACHED. EXDEV: a way out, or a link with an
# absolute path, which may well stay inside; that is for the caller to find out.
_UNABLE = (errno.ENOSYS, errno.EPERM, errno.EINVAL)
_CANNOT_TELL = (*_UNABLE, errno.EAGAIN, errno.EXDEV)


class Unsupported(Exception):
    """This system has no C{openat2}."""


class _How(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


_HOW_SIZE = ctypes.sizeof(_How)
_ARGUMENTS = (
    ctypes.c_long,
    ctypes.c_long,
    ctypes.c_char_p,
    ctypes.POINTER(_How),
    ctypes.c_size_t,
)


def _function(library: ctypes.CDLL) -> Callable[..., int]:
    function = library.syscall
    function.argtypes = _ARGUMENTS
    function.restype = ctypes.c_long
    return function


# A call that cannot wait keeps the interpreter's lock: letting go of it and getting it back from
# busy threads costs more than the call.
_quick = _function(ctypes.PyDLL(None, use_errno=True))
_slow = _function(ctypes.CDLL(None, use_errno=True))

_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_ANY_NOW = _How(OPEN_FLAGS, 0, _RESOLVE_CACHED)
_ROOT_NOW = _How(_DIRECTORY, 0, _RESOLVE_CACHED)
_BELOW_NOW = _How(OPEN_FLAGS, 0, _RESOLVE_CACHED | _RESOLVE_BENEATH)
_BELOW = _How(OPEN_FLAGS, 0, _RESOLVE_BENEATH)


def openNow(root: bytes | None, name: bytes) -> int | None:
    """
    Open a file if that takes neither a disk nor a judgement.

    @param root: The directory that it has to be in; L{None} for none, C{name} is absolute then.
    @param name: Below C{root}.
    @return: A descriptor; L{None} if this cannot be told at once.
    @raise OSError: As C{open} does.
    """
    if not _SUPPORTED:
        return None
    try:
        if root is None:
            return _call(_quick, _AT_FDCWD, name, _ANY_NOW)
        # Opened each time, for 2 microseconds: a root may be a link that a deployment moves.
        directory = _call(_quick, _AT_FDCWD, root, _ROOT_NOW)
        try:
            return _call(_quick, directory, name, _BELOW_NOW)
        finally:
            os.close(directory)
    except OSError as error:
        if error.errno in _CANNOT_TELL:
            return None
        raise


def openBeneath(root: bytes, name: bytes) -> int:
    """
    Open a file below a directory. Called in a thread.

    @raise Unsupported: If the system has no such call.
    @raise OSError: C{EXDEV} if C{name} leaves the directory, or has a link with an absolute path.
    """
    if not _SUPPORTED:
        raise Unsupported()
    directory = os.open(root, _DIRECTORY)
    try:
        return _call(_slow, directory, name, _BELOW)
    except OSError as error:
        if error.errno in _UNABLE:
            raise Unsupported() from None
        raise
    finally:
        os.close(directory)


def _call(function: Callable[..., int], directory: int, name: bytes, how: _How) -> int:
    if b"\0" in name:
        raise ValueError("embedded null byte")
    descriptor = function(_SYS_OPENAT2, directory, name, how, _HOW_SIZE)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(name))
    return descriptor
