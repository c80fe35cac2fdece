"""
Put or get 1 MiB with the bare client of a store of blobs, and print what was done as JSON.

C{python bench/barepieces.py rados:POOL put 16 2.0}: sixteen at one time, for two seconds.
"""

import json
import os
import resource
import sys
from pathlib import Path
from time import monotonic
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from storagegate.storage.blobs import rados, s3
from storagegate.storage.threadpool import BoundedThreadPool

SIZE = 1 << 20
STORED = 16


async def work(pieces: Any, what: str, connections: int, seconds: float) -> dict[str, float]:
    """
    Put or get for some time.

    @return: The figures.
    """
    body = os.urandom(SIZE)
    done, nonce = 0, os.urandom(4).hex()
    stored = [f"{nonce}stored{n}" for n in range(STORED)]
    if what == "get":
        await gatherResults([pieces.put(each, 0, [body], True) for each in stored])
    begin = monotonic()
    used = resource.getrusage(resource.RUSAGE_SELF)

    async def one(lane: int) -> None:
        nonlocal done
        while monotonic() < begin + seconds:
            if what == "put":
                await pieces.put(f"{nonce}{lane}-{done}", 0, [body], True)
            else:
                found, _ = await pieces.get(stored[done % STORED], 0, SIZE)
                assert len(found) == SIZE
            done += 1

    await gatherResults([Deferred.fromCoroutine(one(lane)) for lane in range(connections)])
    took, after = monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return {"done": done, "seconds": took, "cpu": cpu}


async def main(reactor: Any, blobs: str, what: str, connections: str, seconds: str) -> None:
    """Run it as a command."""
    module: Any = rados if blobs.startswith("rados:") else s3
    pool = BoundedThreadPool(reactor, 4, 64)
    pieces = module.openPieces(blobs, reactor, pool)
    print(json.dumps(await work(pieces, what, int(connections), float(seconds))))
    await pieces.close()


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, *sys.argv[1:])))
