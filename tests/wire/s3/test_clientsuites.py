"""Test suites that the authors of clients run against Amazon."""

import json
import sys
from typing import Any

from tests.support import clientsuite
from tests.support.clients import ROOT, runTool
from tests.support.daemon import Daemon
from tests.support.sdists import sourcesOf
from tests.support.selection import CHOICE, long
from tests.wire.s3.fixture import S3Case, makeDaemon, ownDirectory

_KEYS = "remove_object remove_object_version remove_objects remove_object_versions remove_bucket"
_READS = (
    "get_object get_object_version fget_object fget_object_version get_object_with_default_length "
    "get_partial_object list_objects list_objects_v1 list_object_v1_versions "
    "list_objects_with_prefix list_object_versions"
)
_WRITES = (
    "make_bucket_default_region list_buckets fput_object_small_file fput_object_large_file "
    "fput_object_with_content_type negative_put_object_with_path_segment"
)
_COPIES = (
    "copy_object_no_copy_condition copy_object_etag_match copy_object_with_metadata "
    "copy_object_negative_etag_match copy_object_modified_since copy_object_unmodified_since"
)
_URLS = (
    "presigned_get_object_default_expiry presigned_get_object_response_headers "
    "presigned_get_object_version presigned_put_object_default_expiry presigned_post_policy"
)
_SETTINGS = (
    "get_bucket_policy set_bucket_policy_readonly set_bucket_policy_readwrite "
    "get_bucket_notification"
)
# Each of these takes half a minute or waits for expiries. Left out are SelectObjectContent and
# extensions of MinIO: archives that the server unpacks, and prefixes without versions.
_SLOW = (
    "put_object stat_object stat_object_version list_objects_with_1001_files thread_safe "
    "presigned_get_object_expiry presigned_put_object_expiry"
)


class _SuiteCase(S3Case):
    def runSuite(self, kind: str, names: list[str], variables: dict[str, str]) -> dict[str, str]:
        """Run tests of a suite; return its results by test."""
        sources = sourcesOf(kind)
        command = [sys.executable, clientsuite.__file__, kind, sources, *names]
        output = runTool(command, variables, directory=self.makeDirectory(kind))
        results: dict[str, str] = json.loads(output.rstrip().rpartition("\n")[2])
        self.assertEqual({name: r for name, r in results.items() if r != "PASS"}, {})
        return results


@long("downloads a suite, and takes half a minute")
class MinioSuiteTests(_SuiteCase):
    """minio-py's functional suite."""

    def test_functional(self) -> None:
        """All that Amazon has too passes."""
        parts = [_KEYS, _READS, _WRITES, _COPIES, _URLS, _SETTINGS]
        names = [f"test_{name}" for name in " ".join(parts).split()]
        if CHOICE == "soak":
            names += [f"test_{name}" for name in _SLOW.split()]
        variables = {
            "ACCESS_KEY": ROOT.accessKey,
            "SECRET_KEY": ROOT.secretKey,
            "SERVER_ENDPOINT": self.host,
            "ENABLE_HTTPS": "0",
            "MINT_MODE": "full",
        }
        self.assertEqual(self.runSuite("minio", names, variables).keys(), set(names))


@long("downloads a suite, and starts a daemon in another region")
class S3transferSuiteTests(_SuiteCase):
    """s3transfer's integration suite, which is written for us-west-2."""

    def startDaemon(self) -> Daemon:
        """Start a daemon in the region of the suite."""
        daemon = makeDaemon(ownDirectory("west") / "data", STORAGEGATE_REGION="us-west-2")
        self.addCleanup(daemon.stop)
        return daemon.start()

    def test_transfers(self) -> None:
        """Uploads and deletes pass; downloads wait for seconds each, and are left to the soak."""
        variables: dict[str, Any] = {
            "AWS_ACCESS_KEY_ID": ROOT.accessKey,
            "AWS_SECRET_ACCESS_KEY": ROOT.secretKey,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": str(self.makeDirectory("home")),
        }
        modules = ["test_upload", "test_delete"]
        if CHOICE == "soak":
            modules += ["test_copy", "test_download"]
        results = self.runSuite("s3transfer", modules, variables)
        self.assertGreaterEqual(len(results), 12)
