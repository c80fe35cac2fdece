"""Other S3 servers on loopback, as blob stores."""

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from attrs import frozen
from awscrt import auth

from storagegate.storage.cluster.blobs.s3 import BucketAddress
from tests.support.clients import ROOT, botoClient
from tests.support.daemon import Daemon
from tests.support.ports import waitForPort
from tests.support.programs import needProgram

_buckets = count(1)


@frozen
class Upstream:
    """
    A server with our key pair.

    @ivar url: The URL, without a trailing slash.
    @ivar full: The disk of our own daemon is full as long as this file exists.
    """

    url: str
    full: Path = Path(os.devnull)

    def makeBucket(self, name: str, authorities: str) -> None:
        """Create a bucket over TLS. Blocks."""
        botoClient(self.url, cafile=authorities).create_bucket(Bucket=name)

    def newBucket(self) -> BucketAddress:
        """Create a bucket; return its address with a prefix for blobs. Blocks."""
        name = f"upstream-{next(_buckets)}"
        botoClient(self.url).create_bucket(Bucket=name)
        return BucketAddress(urlsplit(self.url).netloc, False, name, "blobs/")

    def names(self, address: BucketAddress) -> set[str]:
        """List the names below the prefix. Blocks."""
        pages = botoClient(self.url).get_paginator("list_objects_v2")
        return {
            entry["Key"].removeprefix(address.prefix)
            for page in pages.paginate(Bucket=address.bucket)
            for entry in page.get("Contents", ())
        }


def credentials() -> auth.AwsCredentialsProvider:
    """Return the key pair of all servers here."""
    return auth.AwsCredentialsProvider.new_static(ROOT.accessKey, ROOT.secretKey)


_FULL_DISK = """
import errno, os
from storagegate.storage.files import Files
write = Files.write
def refuse(self, fd, buffers):
    if os.path.exists({flag!r}):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return write(self, fd, buffers)
Files.write = refuse
from twisted.scripts.twistd import run
run()
"""


@cache
def ownServer() -> Upstream:
    """Return our own daemon, which runs until the test run ends."""
    directory = tempfile.mkdtemp(prefix="storagegate-upstream-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    flag = os.path.join(directory, "full")
    environment = {
        "STORAGEGATE_ACCESS_KEY": ROOT.accessKey,
        "STORAGEGATE_SECRET_KEY": ROOT.secretKey,
    }
    program = _FULL_DISK.format(flag=flag)
    daemon = Daemon(Path(directory) / "data", environment=environment, program=program)
    atexit.register(daemon.kill)
    return Upstream(daemon.start().url(), Path(flag))


@cache
def rcloneServer() -> Upstream:
    """
    Return C{rclone serve s3}, which runs until the test run ends.

    @raise SkipTest: If rclone is not installed.
    """
    import socket

    program = needProgram("rclone")
    directory = tempfile.mkdtemp(prefix="storagegate-rclone-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "serve", "s3", "--addr", f"127.0.0.1:{port}"]
    process = subprocess.Popen(
        [*command, "--auth-key", f"{ROOT.accessKey},{ROOT.secretKey}", directory],
        env={**os.environ, "RCLONE_CONFIG": os.path.join(directory, ".none")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(process.kill)
    waitForPort(port, process)
    return Upstream(f"http://127.0.0.1:{port}")
