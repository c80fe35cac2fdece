"""What two processes that share a store of blobs see of each other."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from twisted.internet.threads import deferToThread

from storagegate.storage.errors import CorruptBlob
from storagegate.storage.records import Content, Segment
from tests.contract.blobs import MIB, load, store
from tests.contract.remoteblobs import STORE
from tests.support.blobprogram import bodyOf
from tests.support.daemon import CHECKOUT


class ProcessContract:
    """Mix into a case of L{tests.contract.remoteblobs} that names the store by a URL."""

    def url(self) -> tuple[str, Mapping[str, str]]:
        """Return the text that names the store, and variables of a process that uses it."""
        raise NotImplementedError

    async def test_twoProcesses(self: Any) -> None:
        """What one process has written the other reads and removes, and then it is gone."""
        url, variables = self.url()
        path = os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])
        other = subprocess.Popen(
            [sys.executable, "-m", "tests.support.blobprogram", url, STORE, "01"],
            env={**os.environ, "PYTHONPATH": path, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.addCleanup(deferToThread, other.communicate)

        def ask(*words: object) -> str:
            assert other.stdin is not None and other.stdout is not None
            print(*words, file=other.stdin, flush=True)
            return other.stdout.readline().strip()

        for size in (10, MIB, 9 * MIB + 1):
            theirs = await deferToThread(ask, "put", size, 1)
            content = Content(size, segments=(Segment(theirs, 0, size),))
            body = bodyOf(str(size), "1")
            self.assertTrue(await load(self.blobs, content) == body)
            [ours] = (await store(self.blobs, bodyOf(str(size), "2"))).segments
            self.assertEqual(await deferToThread(ask, "read", ours.blob, size, 2), "right")
            self.assertEqual(await deferToThread(ask, "remove", ours.blob, theirs), "done")
            for blob in (theirs, ours.blob):
                with self.assertRaises(CorruptBlob):
                    await self.blobs.open(Segment(blob, 0, size))
                self.assertEqual(await deferToThread(ask, "read", blob, size, 1), "CorruptBlob")
