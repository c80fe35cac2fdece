"""
A separate process that uses a blob store: it reads one command a line and answers with a line.

::

    put SIZE SEED       -> the id
    read ID SIZE SEED   -> right, wrong, or the name of the error
    remove ID ...       -> done
"""

import os
import sys
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.stdio import StandardIO
from twisted.protocols.basic import LineOnlyReceiver

from storagegate.storage.cluster.blobs import rados, s3, shared
from storagegate.storage.cluster.blobs.remote import RemoteBlobs, checkPieces
from storagegate.storage.files import FailStopLatch
from storagegate.storage.layout import BlobIds
from storagegate.storage.records import Content, Segment
from storagegate.storage.threadpool import BoundedThreadPool


def bodyOf(size: str, seed: str) -> bytes:
    """Make the body of a blob."""
    return Random(int(seed)).randbytes(int(size))


class Commands(LineOnlyReceiver):
    """Executes commands in order."""

    delimiter = b"\n"

    def __init__(self, blobs: Any) -> None:
        self._blobs = blobs
        self._last: Deferred[None] = Deferred()
        self._last.callback(None)

    def lineReceived(self, line: bytes) -> None:
        """Execute a command when the previous one has ended."""
        words = line.decode().split()
        self._last.addCallback(lambda _: Deferred.fromCoroutine(self._carryOut(*words)))

    def connectionLost(self, reason: Any = None) -> None:
        """End the process."""
        from twisted.internet import reactor

        reactor.stop()

    async def _carryOut(self, name: str, *words: str) -> None:
        from tests.contract.blobs import load, store

        answer = "done"
        try:
            if name == "put":
                [segment] = (await store(self._blobs, bodyOf(*words))).segments
                self._blobs.confirm([segment.blob])
                answer = segment.blob
            elif name == "read":
                blob, size, seed = words
                content = Content(int(size), segments=(Segment(blob, 0, int(size)),))
                isRight = await load(self._blobs, content) == bodyOf(size, seed)
                answer = "right" if isRight else "wrong"
            else:
                await self._blobs.remove(words)
        except Exception as error:
            answer = type(error).__name__
        self.sendLine(answer.encode())


def main(url: str, store: str, owner: str) -> None:
    """Serve until standard input ends."""
    from twisted.internet import reactor

    pool = BoundedThreadPool(reactor)
    pieces: Any
    if url.startswith("rados:"):
        pieces = rados.openPieces(url, reactor, pool)
    elif url.startswith("s3:"):
        pieces = s3.openPieces(url, reactor, pool)
    else:
        pieces = shared.openPieces(url, reactor)
    # Like a daemon that goes into the background.
    pieces.wait(Deferred.fromCoroutine(checkPieces(pieces, store)))
    pieces.detach()
    if child := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    newId = BlobIds(owner=bytes.fromhex(owner)).new
    blobs = RemoteBlobs(pieces, pool, reactor, newId, store, FailStopLatch())
    reactor.callWhenRunning(lambda: StandardIO(Commands(blobs)))
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
