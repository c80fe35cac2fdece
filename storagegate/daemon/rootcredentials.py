"""
The root key pair: its rules, and the file that keeps a generated one.

The file is C{DATA/root-credentials}, mode 0600. Its two lines are assignments that a shell can
read, so that C{export $(cat DATA/root-credentials)} is all that S3 clients need::

    AWS_ACCESS_KEY_ID=...
    AWS_SECRET_ACCESS_KEY=...
"""

import os
import re
import secrets
import string

from attrs import field, frozen

from storagegate.core.files import readSmallFile
from storagegate.storage.files import syncDirectory

# Long enough for any client's own rules (MinIO: 3), short enough for a header and a log line. A
# space at an end would not survive the trip through a header.
_PRINTABLE = re.compile(r"[!-~][ -~]{1,126}[!-~]", re.ASCII)

CREDENTIAL = "3 to 128 printable ASCII characters without space at the ends"
"""What one half of a key pair is."""

_ACCESS_KEY_NAME = "AWS_ACCESS_KEY_ID"
_SECRET_KEY_NAME = "AWS_SECRET_ACCESS_KEY"

# The file holds two short lines; what is longer is another file.
_FILE_LIMIT = 4096


class CredentialsError(Exception):
    """The file of the root key pair cannot be used; the text names the file and the reason."""


@frozen
class RootCredentials:
    """A key pair."""

    accessKey: str
    secretKey: str = field(repr=False)


def checkCredential(value: str) -> str:
    """
    Accept one half of a key pair.

    @param value: The access key or the secret key.
    @raise ValueError: If it is not 3 to 128 printable ASCII characters. The text does not repeat
        the value, for it may be a secret.
    """
    if not _PRINTABLE.fullmatch(value):
        raise ValueError(f"not {CREDENTIAL}")
    return value


def generateCredentials() -> RootCredentials:
    """Make a key pair in the form that S3 users know: 20 and 40 characters, safe in a shell."""
    accessAlphabet = string.ascii_uppercase + string.digits
    secretAlphabet = string.ascii_letters + string.digits
    return RootCredentials(
        "".join(secrets.choice(accessAlphabet) for _ in range(20)),
        "".join(secrets.choice(secretAlphabet) for _ in range(40)),
    )


def shellText(pair: RootCredentials) -> str:
    """Write a pair as the two lines of its file."""
    return f"{_ACCESS_KEY_NAME}={pair.accessKey}\n{_SECRET_KEY_NAME}={pair.secretKey}\n"


def loadOrCreate(path: str) -> tuple[RootCredentials, bool]:
    """
    Read the file of the root key pair, or make it.

    @param path: The file, in a directory that exists.
    @return: The pair, and whether it was made now.
    @raise CredentialsError: If the file exists but does not hold a pair, or cannot be made.
    """
    try:
        try:
            return _read(path), False
        except FileNotFoundError:
            pass
        made = generateCredentials()
        try:
            _write(path, made)
        except FileExistsError:
            # Another process was faster; its pair is the one.
            return _read(path), False
        return made, True
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}") from error


def load(path: str) -> RootCredentials | None:
    """
    Read the file of the root key pair; L{None} where there is none.

    @param path: The file, which may be absent.
    @raise CredentialsError: If it does not hold a pair, or cannot be read.
    """
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}") from error


def _read(path: str) -> RootCredentials:
    try:
        lines = readSmallFile(path, _FILE_LIMIT).decode("utf-8", "replace").splitlines()
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        return RootCredentials(
            checkCredential(values[_ACCESS_KEY_NAME]), checkCredential(values[_SECRET_KEY_NAME])
        )
    except KeyError as error:
        raise CredentialsError(f"{path}: {error.args[0]} is missing") from error
    except ValueError as error:
        raise CredentialsError(f"{path}: {error}") from error


def _write(path: str, pair: RootCredentials) -> None:
    """
    Make the file whole and durable, or not at all.

    @raise FileExistsError: If it exists already.
    """
    draft = f"{path}.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(shellText(pair))
            file.flush()
            os.fsync(descriptor)
        # A link fails where a rename would silently replace the pair of a faster process.
        os.link(draft, path)
    finally:
        os.unlink(draft)
    syncDirectory(os.path.dirname(path))
