"""
The file that keeps a generated root key pair.

The file is C{DATA/root-credentials}, mode 0600. Its two lines are shell assignments, so C{export
$(cat DATA/root-credentials)} configures S3 clients::

    AWS_ACCESS_KEY_ID=...
    AWS_SECRET_ACCESS_KEY=...
"""

from storagegate.core.files import readSmallFile
from storagegate.objects.issuedkeys import KeyPair, generateKeyPair, readCredential
from storagegate.storage.files import createFile

_ACCESS_KEY_NAME = "AWS_ACCESS_KEY_ID"
_SECRET_KEY_NAME = "AWS_SECRET_ACCESS_KEY"

# The file holds two short lines; a larger file is not a key pair.
_FILE_LIMIT = 4096


class CredentialsError(Exception):
    """The file of the root key pair cannot be used; the text names the file and the reason."""


def shellText(pair: KeyPair) -> str:
    """Format a pair as the two lines of its file."""
    return f"{_ACCESS_KEY_NAME}={pair.accessKey}\n{_SECRET_KEY_NAME}={pair.secretKey}\n"


def loadOrCreate(path: str) -> tuple[KeyPair, bool]:
    """
    Read the file of the root key pair; create it if it is missing.

    @param path: The file, in a directory that exists.
    @return: The pair, and whether it was created now.
    @raise CredentialsError: If the file does not contain a pair, or cannot be created.
    """
    try:
        try:
            return _read(path), False
        except FileNotFoundError:
            pass
        made = generateKeyPair()
        try:
            save(path, made)
        except FileExistsError:
            # Another process was faster; its pair is used.
            return _read(path), False
        return made, True
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}") from error


def load(path: str) -> KeyPair | None:
    """
    Read the file of the root key pair; return C{None} if it does not exist.

    @param path: The file, which may be absent.
    @raise CredentialsError: If the file does not contain a pair, or cannot be read.
    """
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}") from error


def _read(path: str) -> KeyPair:
    try:
        lines = readSmallFile(path, _FILE_LIMIT).decode("utf-8", "replace").splitlines()
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        return KeyPair(
            readCredential(values[_ACCESS_KEY_NAME]), readCredential(values[_SECRET_KEY_NAME])
        )
    except KeyError as error:
        raise CredentialsError(f"{path}: {error.args[0]} is missing") from error
    except ValueError as error:
        raise CredentialsError(f"{path}: {error}") from error


def save(path: str, pair: KeyPair) -> None:
    """
    Create the file atomically and durably.

    @param path: The file, in a directory that exists.
    @raise FileExistsError: If the file exists already.
    """
    createFile(path, shellText(pair).encode("ascii"))
