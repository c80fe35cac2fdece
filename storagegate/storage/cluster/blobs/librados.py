"""
C{ctypes} bindings for the part of librados that blobs use. Only C{librados.so.2} must be installed.

Ceph's own C{rados} module is built for one Python version and is no faster.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
"""Called with a completion and a number, in a librados thread."""

_HANDLE = ctypes.c_void_p
_OUT = ctypes.POINTER(ctypes.c_void_p)
_SIZE = ctypes.c_size_t
_OFFSET = ctypes.c_uint64

_PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rados_create": (ctypes.c_int, (_OUT, ctypes.c_char_p)),
    "rados_conf_read_file": (ctypes.c_int, (_HANDLE, ctypes.c_char_p)),
    "rados_conf_parse_env": (ctypes.c_int, (_HANDLE, ctypes.c_char_p)),
    "rados_conf_set": (ctypes.c_int, (_HANDLE, ctypes.c_char_p, ctypes.c_char_p)),
    "rados_connect": (ctypes.c_int, (_HANDLE,)),
    "rados_shutdown": (None, (_HANDLE,)),
    "rados_ioctx_create": (ctypes.c_int, (_HANDLE, ctypes.c_char_p, _OUT)),
    "rados_ioctx_destroy": (None, (_HANDLE,)),
    "rados_ioctx_set_namespace": (None, (_HANDLE, ctypes.c_char_p)),
    "rados_set_osdmap_full_try": (None, (_HANDLE,)),
    "rados_aio_create_completion2": (ctypes.c_int, (ctypes.c_void_p, Callback, _OUT)),
    "rados_aio_get_return_value": (ctypes.c_int, (_HANDLE,)),
    "rados_aio_release": (None, (_HANDLE,)),
    "rados_aio_write": (
        ctypes.c_int,
        (_HANDLE, ctypes.c_char_p, _HANDLE, ctypes.c_char_p, _SIZE, _OFFSET),
    ),
    "rados_aio_remove": (ctypes.c_int, (_HANDLE, ctypes.c_char_p, _HANDLE)),
    "rados_nobjects_list_open": (ctypes.c_int, (_HANDLE, _OUT)),
    "rados_nobjects_list_next": (
        ctypes.c_int,
        (_HANDLE, ctypes.POINTER(ctypes.c_char_p), _HANDLE, _HANDLE),
    ),
    "rados_nobjects_list_close": (None, (_HANDLE,)),
    "rados_create_read_op": (_HANDLE, ()),
    "rados_release_read_op": (None, (_HANDLE,)),
    "rados_read_op_stat": (
        None,
        (_HANDLE, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    ),
    "rados_read_op_read": (
        None,
        (_HANDLE, _OFFSET, _SIZE, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p),
    ),
    "rados_aio_read_op_operate": (
        ctypes.c_int,
        (_HANDLE, _HANDLE, _HANDLE, ctypes.c_char_p, ctypes.c_int),
    ),
    "rados_create_write_op": (_HANDLE, ()),
    "rados_release_write_op": (None, (_HANDLE,)),
    "rados_write_op_create": (None, (_HANDLE, ctypes.c_int, ctypes.c_char_p)),
    "rados_write_op_write_full": (None, (_HANDLE, ctypes.c_char_p, _SIZE)),
    "rados_aio_write_op_operate": (
        ctypes.c_int,
        (_HANDLE, _HANDLE, _HANDLE, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int),
    ),
}

CREATE_EXCLUSIVE = 1
"""The flag of C{rados_write_op_create} to fail if the object exists."""


@cache
def library() -> Any:
    """
    Load librados. Blocks.

    @raise OSError: librados is not installed.
    """
    loaded = ctypes.CDLL("librados.so.2")
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


_newBytes: Callable[[None, int], bytes] = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t
)(("PyBytes_FromStringAndSize", ctypes.pythonapi))


def newBuffer(length: int) -> bytes:
    """
    Return uninitialised bytes, which librados fills before they are read. A C{bytearray} would be
    zeroed first and copied afterwards.

    @param length: More than 1, because Python shares single-byte objects.
    """
    return _newBytes(None, length)
