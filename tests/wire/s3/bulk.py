"""Many requests at once, cheaply: threads with a kept connection each and the plain key headers."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from typing import TypeVar
from urllib.parse import quote

from tests.support.clients import ROOT, Account
from tests.support.s3signer import ANSWER_SECONDS

T = TypeVar("T")

FILLERS = 4
"""More threads than this do not go faster: the client's own interpreter is the limit."""


def connect(address: tuple[str, int]) -> HTTPConnection:
    """Make a connection to a server, which is kept from one request to the next."""
    return HTTPConnection(*address, timeout=ANSWER_SECONDS)


def objectTarget(bucket: str, key: str) -> str:
    """Write the target of an object."""
    return f"/{bucket}/{quote(key, safe='/-_.~')}"


def fillBucket(
    address: tuple[str, int], bucket: str, keys: Sequence[str], account: Account = ROOT
) -> None:
    """
    Store a small object under each key.

    @raise AssertionError: If a write is not acknowledged.
    """

    def fill(share: Iterable[str]) -> None:
        connection = connect(address)
        for key in share:
            connection.request(
                "PUT", objectTarget(bucket, key), key.encode(), account.plainHeaders()
            )
            with connection.getresponse() as response:
                response.read()
                assert response.status == 200, (key, response.status)
        connection.close()

    inParallel([partial(fill, keys[start::FILLERS]) for start in range(FILLERS)])


def inParallel(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls at the same time, in a thread each, and give their results in order."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]
