"""
Runs a command under the restrictions of the systemd unit file::

    python confine.py FILE COMMAND...

C{FILE} is JSON: C{calls} are the allowed system calls, C{families} the allowed address families.
Other calls fail with C{EPERM}.
"""

import ctypes
import json
import os
import socket
import sys
from pathlib import Path

_ALLOW = 0x7FFF0000
_EPERM = 0x00050000 | 1
_EQUAL = 4
_SET_NO_NEW_PRIVS = 38

UNSUPPORTED = 77
"""The exit code if the system does not support this."""


class _Comparison(ctypes.Structure):
    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operation", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    ]


def _isDone(result: int) -> None:
    if result != 0:
        sys.exit(UNSUPPORTED)


def confine(calls: list[str], families: list[str]) -> None:
    """Restrict the process to these system calls and address families."""
    libc = ctypes.CDLL(None, use_errno=True)
    _isDone(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    try:
        seccomp = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        sys.exit(UNSUPPORTED)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(_EPERM))
    for name in calls:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        # System calls of other architectures have negative numbers.
        if number >= 0 and name != "socket":
            _isDone(seccomp.seccomp_rule_add(rules, ctypes.c_uint32(_ALLOW), number, 0))
    number = seccomp.seccomp_syscall_resolve_name(b"socket")
    for name in families:
        only = _Comparison(0, _EQUAL, getattr(socket, name), 0)
        allow = ctypes.c_uint32(_ALLOW)
        _isDone(seccomp.seccomp_rule_add_array(rules, allow, number, 1, ctypes.byref(only)))
    _isDone(seccomp.seccomp_load(rules))


if __name__ == "__main__":
    confine(**json.loads(Path(sys.argv[1]).read_text()))
    os.execv(sys.argv[2], sys.argv[2:])
