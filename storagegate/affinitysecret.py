"""
What cookies of sticky sessions are signed with, kept in C{DATA/affinity-secret}, mode 0600.

Whoever has it can choose an instance, and no more. It is kept so that workers, and the daemon after
a restart, take the cookies that browsers have.
"""

import os
import secrets

AFFINITY_FILE = "affinity-secret"

_BYTES = 32


def loadSecret(directory: str) -> bytes:
    """
    Read the secret of a data directory, or make it.

    @raise OSError: If neither can be done.
    """
    path = os.path.join(directory, AFFINITY_FILE)
    draft = f"{path}.{os.getpid()}"
    found = _read(path)
    if found is not None:
        return found
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
        # Of several workers that begin at the same time, one makes it for all of them.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)
    made = _read(path)
    if made is None:
        raise FileNotFoundError(path)
    return made


def _read(path: str) -> bytes | None:
    """Give what the file has; C{None} if there is none."""
    try:
        with open(path, "rb") as file:
            found = file.read(_BYTES)
    except FileNotFoundError:
        return None
    if len(found) < _BYTES:
        raise OSError(f"{path}: too short; remove it")
    return found
