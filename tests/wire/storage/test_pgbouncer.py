"""The catalog behind PgBouncer, Debian's package, which pools sessions."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.catalog import openPostgreSQL
from storagegate.storage.mutations import AddBucket, PutObject
from storagegate.storage.ranges import ObjectRange
from tests.contract.catalogcase import ALWAYS, bucketNamed, inlineRecord
from tests.support.ports import heldPort, waitForPort
from tests.support.postgresql import USER, asUser, sharedServer
from tests.support.programs import needProgram
from tests.support.selection import long

_INI = """
[databases]
* = host=127.0.0.1 port={server} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = session
"""


def pause(seconds: float = 0.02) -> Deferred[None]:
    """Wait."""
    from twisted.internet import reactor

    return deferLater(reactor, seconds)


@long("starts PgBouncer")
class SessionTests(TestCase):
    """C{pool_mode = session}."""

    async def test_nodes(self) -> None:
        """Two nodes write, read, and are notified, all through it."""
        from twisted.internet import reactor

        program = needProgram("pgbouncer")
        directory = tempfile.mkdtemp(prefix="sgpb")
        self.addCleanup(shutil.rmtree, directory)
        os.chmod(directory, 0o755)
        port = heldPort(self)
        ini = Path(directory, "pgbouncer.ini")
        ini.write_text(_INI.format(server=sharedServer().port, user=USER, port=port))
        process = subprocess.Popen([*asUser(), program, "-q", str(ini)])
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        waitForPort(port, process)
        conninfo = sharedServer().store().replace(f"port={sharedServer().port}", f"port={port}")
        nodes = [openPostgreSQL(reactor, [conninfo], "node", 60.0) for _ in range(2)]
        for node in nodes:
            self.addCleanup(node.close)
        told: list[str] = []
        nodes[1].onBucketChanged = told.append
        await nodes[0].commit(AddBucket(bucketNamed("a")))
        # What the connection answers after its LISTEN.
        await nodes[1].listObjects(ObjectRange("a", b"", b"", b"", 1))
        await nodes[0].commit(AddBucket(bucketNamed("b")))
        await gatherResults(
            [
                node.commit(PutObject(inlineRecord(b"%d" % n), ALWAYS))
                for n in range(50)
                for node in nodes
            ]
        )
        self.assertEqual(
            len((await nodes[1].listObjects(ObjectRange("b", b"", b"", b"", 99))).objects), 50
        )
        while "b" not in told:
            await pause()
