"""
The file of the master keys of a store, C{DATA/master-keys}, mode 0600.

It is JSON, and is always replaced as a whole. The digest detects a damaged file::

    {"format": 1,
     "keys": [{"name": NAME, "createdMs": MS, "disabled": false,
               "versions": [{"id": HEX, "key": BASE64}, ...]}, ...],
     "digest": the SHA-256 of the encoded members before it, in hexadecimal}

Versions count from 1. The random id of a version is in each text that it wraps, so that keys of
another file are told from damage. No version is ever removed. All functions block.
"""

import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from storagegate.core.files import FileTooLong, readSmallFile
from storagegate.objects.errors import MasterKeyExists, MasterKeyNotFound
from storagegate.storage.files import createFile, replaceFile

DEFAULT_KEY = "default"
"""The name of the key that each file has from its creation."""

KEY_BYTES = 32

MOST_KEYS = 1000
"""Master keys of a file: each process keeps all of them in memory."""

MOST_VERSIONS = 1000
"""Versions of a key: a rotation each day for almost three years."""

# A key with its versions takes at most 100 kB; a larger file is not a file of keys.
_FILE_LIMIT = 16 * 1024 * 1024

_FORMAT = 1
_ID_BYTES = 8

KEY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
"""The names of master keys: one segment of a URL at Vault, and the end of an ARN."""


class KeyFileError(Exception):
    """The file cannot be used; the text names the file and the reason, and no key."""


class KeyVersion(Struct, frozen=True, forbid_unknown_fields=True):
    """
    A version of a master key.

    @ivar id: Random, in hexadecimal.
    @ivar key: 32 random bytes.
    """

    id: str
    key: bytes

    def __repr__(self) -> str:
        """Leave out the key."""
        return f"KeyVersion({self.id})"


class StoredKey(Struct, frozen=True, forbid_unknown_fields=True):
    """
    A master key.

    @ivar versions: At least one; the last one wraps.
    """

    name: str
    createdMs: int
    disabled: bool
    versions: tuple[KeyVersion, ...]


class KeyFile(Struct, frozen=True, forbid_unknown_fields=True):
    """
    The content of the file.

    @ivar keys: The default key, and further ones in the order of their creation.
    @ivar digest: See the head of this file.
    """

    format: int
    keys: tuple[StoredKey, ...]
    digest: str = ""

    def find(self, name: str) -> StoredKey:
        """
        Return a key.

        @raise MasterKeyNotFound: There is no such key.
        """
        for key in self.keys:
            if key.name == name:
                return key
        raise MasterKeyNotFound()


def readKeyFile(path: str) -> KeyFile | None:
    """
    Read the file; return L{None} if it does not exist.

    @raise KeyFileError: Others can read it, or it is damaged or unreadable.
    """
    try:
        content = _readPrivate(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from error
    except FileTooLong as error:
        raise KeyFileError(f"{path}: {error}") from error
    try:
        found = msgspec.json.decode(content, type=KeyFile)
    except (ValueError, RecursionError):
        # The error of the decoder may quote the content.
        found = None
    if found is None or found.digest != _digestOf(found):
        raise KeyFileError(f"{path}: damaged or truncated; restore it from a copy") from None
    if found.format != _FORMAT:
        raise KeyFileError(f"{path}: format {found.format} is of a later release")
    isWhole = all(
        key.versions and all(len(each.key) == KEY_BYTES and any(each.key) for each in key.versions)
        for key in found.keys
    )
    if not isWhole or DEFAULT_KEY not in {key.name for key in found.keys}:
        raise KeyFileError(f"{path}: it has no default key, or a key without a version")
    return found


def createKeyFile(path: str) -> None:
    """
    Create the file with the default key, unless it exists.

    @raise KeyFileError: It cannot be created.
    """
    with _errors(path), suppress(FileExistsError):
        # If another process is faster, its keys are used.
        createFile(path, _encode(KeyFile(_FORMAT, (_newKey(DEFAULT_KEY),))))


def addKey(path: str, name: str) -> None:
    """
    Add a key; create the file if it does not exist.

    @raise MasterKeyExists: There is a key of this name.
    @raise KeyFileError: The file cannot be used or written.
    """
    if not os.path.lexists(path):
        createKeyFile(path)
        if name == DEFAULT_KEY:
            return

    def add(file: KeyFile) -> KeyFile:
        if any(key.name == name for key in file.keys):
            raise MasterKeyExists()
        if len(file.keys) >= MOST_KEYS:
            raise KeyFileError(f"{path}: it has {MOST_KEYS} keys already")
        return replace(file, keys=(*file.keys, _newKey(name)))

    _change(path, add)


def rotateKey(path: str, name: str) -> None:
    """
    Add a version to a key.

    @raise MasterKeyNotFound: There is no such key.
    @raise KeyFileError: The file cannot be used or written.
    """

    def rotate(key: StoredKey) -> StoredKey:
        if len(key.versions) >= MOST_VERSIONS:
            raise KeyFileError(f"{path}: {name} has {MOST_VERSIONS} versions already")
        return replace(key, versions=(*key.versions, _newVersion()))

    _changeKey(path, name, rotate)


def disableKey(path: str, name: str, disabled: bool) -> None:
    """
    Disable a key, or enable it again.

    @raise MasterKeyNotFound: There is no such key.
    @raise KeyFileError: The file cannot be used or written.
    """
    _changeKey(path, name, lambda key: replace(key, disabled=disabled))


def _readPrivate(path: str) -> bytes:
    """
    Read a file that only its owner may read.

    @raise KeyFileError: Others may read or write it.
    """
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise KeyFileError(f"{path}: not a file")
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise KeyFileError(f"{path}: its mode {mode} lets others use it; run: chmod 600 {path}")
    return readSmallFile(path, _FILE_LIMIT)


def _changeKey(path: str, name: str, change: Callable[[StoredKey], StoredKey]) -> None:
    def changed(file: KeyFile) -> KeyFile:
        file.find(name)
        keys = tuple(change(key) if key.name == name else key for key in file.keys)
        return replace(file, keys=keys)

    _change(path, changed)


def _change(path: str, change: Callable[[KeyFile], KeyFile]) -> None:
    """Replace the file, which exists; changes by several processes follow each other."""
    # A path may be a link to the file.
    path = os.path.realpath(path)
    with _errors(path), _locked(path):
        file = readKeyFile(path)
        if file is None:
            raise FileNotFoundError(2, os.strerror(2))
        changed = change(file)
        if changed != file:
            replaceFile(path, _encode(changed))


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Lock the file itself, in the directory of which nothing else need be writable for long."""
    while True:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                yield
                return
            # Another process has replaced the file while this one waited.
        finally:
            os.close(descriptor)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from error


def _newKey(name: str) -> StoredKey:
    return StoredKey(name, int(time.time() * 1000), False, (_newVersion(),))


def _newVersion() -> KeyVersion:
    return KeyVersion(os.urandom(_ID_BYTES).hex(), os.urandom(KEY_BYTES))


def _encode(file: KeyFile) -> bytes:
    whole = replace(file, digest=_digestOf(file))
    return msgspec.json.format(msgspec.json.encode(whole)) + b"\n"


def _digestOf(file: KeyFile) -> str:
    return hashlib.sha256(msgspec.json.encode(replace(file, digest=""))).hexdigest()
