"""
S3 by two nodes of a cluster that take turns, behind HAProxy: a part of the suite.

C{NODES_UNDER_TEST=http} does so for the whole suite, and C{NODES_UNDER_TEST=tcp} for what is no
request to HAProxy.
"""

from unittest import TestResult

from twisted.trial.unittest import SkipTest

from tests.support.balancednodes import balancedNodes
from tests.support.daemon import Daemon
from tests.support.selection import long
from tests.wire.s3 import (
    test_awscli,
    test_boto_lists,
    test_boto_multipart,
    test_boto_objects,
    test_boto_races,
    test_boto_versioning,
    test_rclone,
    test_restic,
    test_s3cmd,
)
from tests.wire.s3.fixture import S3Case


class BalancedCase(S3Case):
    """Two nodes in place of the daemon."""

    def startDaemon(self) -> Daemon:
        """See L{S3Case.startDaemon}."""
        nodes: Daemon = balancedNodes("http")
        return nodes

    def runOf(self, case: type[S3Case], name: str) -> None:
        """Run a test of another case by the two nodes."""
        kind = type(case.__name__, (BalancedCase, case), {})
        result = TestResult()
        kind(name).run(result)
        for _, text in (*result.failures, *result.errors):
            self.fail(text)
        for _, reason in result.skipped:
            raise SkipTest(reason)


@long("starts PostgreSQL and HAProxy")
class ClientTests(BalancedCase):
    """A test of each program."""

    def test_awscli(self) -> None:
        """An upload in parts, by hand."""
        self.runOf(test_awscli.AWSTests, "test_multipartByHand")

    def test_rclone(self) -> None:
        """Copies and moves by the server."""
        self.runOf(test_rclone.RcloneTests, "test_serverSideCopyAndMove")

    def test_restic(self) -> None:
        """A backup, its check and its restoration."""
        self.runOf(test_restic.ResticTests, "test_backupCheckRestore")

    def test_s3cmd(self) -> None:
        """A directory is synced."""
        self.runOf(test_s3cmd.S3cmdTests, "test_sync")


@long("starts PostgreSQL and HAProxy")
class BotoTests(BalancedCase):
    """Parts of boto3's suite."""

    def test_races(self) -> None:
        """Of writers under conditions one wins."""
        self.runOf(test_boto_races.RaceTests, "test_create")
        self.runOf(test_boto_races.RaceTests, "test_multipart")

    def test_versions(self) -> None:
        """Versions that several nodes make stand in one order."""
        self.runOf(test_boto_versioning.StateTests, "test_racingWriters")
        self.runOf(test_boto_versioning.WriteTests, "test_multipart")
        self.runOf(test_boto_versioning.ListTests, "test_order")

    def test_objects(self) -> None:
        """What one node makes the other has."""
        self.runOf(test_boto_objects.BucketTests, "test_lifeOfABucket")
        self.runOf(test_boto_objects.CopyTests, "test_copy")

    def test_multipart(self) -> None:
        """Each request of an upload goes to the next node."""
        for name in ("test_byHand", "test_partCopy", "test_partNumbers", "test_lists"):
            self.runOf(test_boto_multipart.MultipartTests, name)

    def test_deletions(self) -> None:
        """Each node lists what the others have left."""
        self.runOf(test_boto_lists.DeleteTests, "test_emptyABucket")
