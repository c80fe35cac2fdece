"""
Issue access keys to a store that no daemon has open, through the store's own interface.

    python -m bench.growth.keyfill DATA

All keys are of one account. The first may do everything in it and administrate the store; each
other one has a policy with patterns of its own: the bench's bucket, and the objects whose names end
in the key's number.
"""

import sys
import time
from functools import cache
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from bench.s3.signing import Authorizer, Credentials, Request, signer
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.mutations import AddAccessKey
from storagegate.storage.records import AccessKey

ACCOUNT = "bench"
DIGITS = 3
"""Digits of the numbers at the end of names."""

KEYS = 10**DIGITS


def credentialsOf(number: int) -> Credentials:
    """Return the pair of a key."""
    return Credentials(f"BENCHKEY{number:08d}", f"secret-of-the-bench-{number:08d}")


def keyOf(number: int) -> AccessKey:
    """Describe a key."""
    pair = credentialsOf(number)
    return AccessKey(
        pair.access,
        pair.secret,
        ACCOUNT,
        bucketPattern="benc?" if number else "",
        prefixPattern=f"?/*-???{number:0{DIGITS}}" if number else "",
        createdMs=int(time.time() * 1000),
        # It may make users.
        role="none" if number else "admin",
    )


def signWithKeys(request: Request, host: str) -> dict[str, str]:
    """Sign a request with the key whose policy allows it: the first one for a bucket."""
    digits = request.path[-DIGITS:]
    return _signerOf(int(digits) if digits.isdigit() else 0)(request, host)


@cache
def _signerOf(number: int) -> Authorizer:
    return signer(credentialsOf(number))


async def issue(reactor: Any, data: str) -> None:
    """Issue the keys."""
    store = openStore(data, reactor, durability="os")
    waiting = [store.catalog.commit(AddAccessKey(keyOf(number))) for number in range(KEYS)]
    await gatherResults(waiting, consumeErrors=True)
    await store.close()


def main(reactor: Any, data: str) -> Deferred[None]:
    """Run as a program."""
    return Deferred.fromCoroutine(issue(reactor, data))


if __name__ == "__main__":
    react(main, sys.argv[1:])
