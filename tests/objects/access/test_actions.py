"""The table of actions, read whole against the operations of ours and of botocore's model."""

from botocore.loaders import Loader
from botocore.model import ServiceModel
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.acl import bucketPermission, objectPermission
from storagegate.objects.access.actions import (
    ACTIONS,
    BYPASS,
    COPY_SOURCE,
    HEADER_ACTIONS,
    INITIATOR_ACTIONS,
    LIST_BUCKETS,
    OPERATION_ACTIONS,
    POLICY_ACTIONS,
    VERSION_ACTIONS,
    WRITER_ACTIONS,
    WRITES,
    actionsOf,
)
from storagegate.s3.attributes import GRANT_HEADERS
from storagegate.s3.operations import OPERATIONS

NOT_OURS = {
    # They have no signature of an account, or are of directory buckets.
    "ListDirectoryBuckets": "directory buckets",
    "WriteGetObjectResponse": "object lambda",
    # Names of the first interface, which send what the newer operations do.
    "GetBucketLifecycle": "GetBucketLifecycleConfiguration",
    "GetBucketNotification": "GetBucketNotificationConfiguration",
    "PutBucketLifecycle": "PutBucketLifecycleConfiguration",
    "PutBucketNotification": "PutBucketNotificationConfiguration",
    "GetObjectTorrent": "refused with 405",
    "GetObjectAnnotation": "no row",
}


class ActionTests(SynchronousTestCase):
    """The table of actions."""

    def test_everyOperation(self) -> None:
        """Each operation has its actions, and no row names an operation that there is not."""
        self.assertEqual(set(OPERATION_ACTIONS), set(OPERATIONS))

    def test_everyOperationOfBotocore(self) -> None:
        """Each operation of botocore's model is in the table or known not to be ours."""
        model = ServiceModel(Loader().load_service_model("s3", "service-2"), "s3")
        missing = set(model.operation_names) - set(OPERATION_ACTIONS)
        self.assertEqual(missing - set(NOT_OURS), set())

    def test_levels(self) -> None:
        """An operation on an object needs actions on objects, one on a bucket those on buckets."""
        # They write below the bucket that their target names.
        written = {"PostObject": "object"}
        for name, operation in OPERATIONS.items():
            kinds = {ACTIONS.get(action, "service") for action in OPERATION_ACTIONS[name]}
            if name == "DeleteObjects":
                self.assertEqual(kinds, set())
            else:
                self.assertEqual(kinds, {written.get(name, operation.level)}, name)

    def test_names(self) -> None:
        """Every action that a table names is an action."""
        named = {
            *VERSION_ACTIONS,
            *VERSION_ACTIONS.values(),
            *HEADER_ACTIONS.values(),
            *POLICY_ACTIONS,
            *WRITER_ACTIONS,
            *INITIATOR_ACTIONS,
            BYPASS,
            COPY_SOURCE,
        }
        named.update(*OPERATION_ACTIONS.values())
        self.assertEqual(named - set(ACTIONS), {LIST_BUCKETS})
        self.assertLessEqual(WRITES, set(OPERATIONS))
        self.assertLessEqual(set(GRANT_HEADERS), set(HEADER_ACTIONS))

    def test_versions(self) -> None:
        """Where a version is named, its own action is needed and no other."""
        self.assertEqual(actionsOf("GetObject"), ("s3:GetObject",))
        self.assertEqual(actionsOf("GetObject", "null"), ("s3:GetObjectVersion",))
        self.assertEqual(
            actionsOf("GetObjectAttributes", "x"),
            ("s3:GetObjectVersion", "s3:GetObjectVersionAttributes"),
        )
        self.assertEqual(actionsOf("PutObject", "x"), ("s3:PutObject",))

    def test_permissions(self) -> None:
        """The lists of buckets grant what concerns a bucket, and what is put in it."""
        self.assertEqual(bucketPermission("s3:ListBucketVersions"), "READ")
        self.assertEqual(bucketPermission("s3:PutObject"), "WRITE")
        self.assertIsNone(bucketPermission("s3:GetObject"))
        self.assertIsNone(bucketPermission("s3:PutBucketPolicy"))
        self.assertEqual(objectPermission("s3:GetObjectVersion"), "READ")
        self.assertEqual(objectPermission("s3:PutObjectVersionAcl"), "WRITE_ACP")
        self.assertIsNone(objectPermission("s3:PutObject"))
