"""Object lock, as clients set and meet it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from tests.support.clients import awsEnvironment, runTool
from tests.support.programs import needProgram
from tests.support.s3signer import Outgoing
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.test_access import AccessCase, statement
from tests.wire.s3.test_refusals import FormCase

GOVERNANCE, COMPLIANCE = "GOVERNANCE", "COMPLIANCE"
_MISSING = "Bucket is missing Object Lock Configuration"


def inDays(days: float) -> datetime:
    """Return the whole second in so many days."""
    return datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)


def rule(mode: str, **period: Any) -> dict[str, Any]:
    """Write a configuration with a default."""
    default = {"Mode": mode, **period}
    return {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": default}}


class LockCase(S3Case):
    """A bucket with object lock."""

    def setUp(self) -> None:
        """Create it."""
        super().setUp()
        self.bucket = self.makeName("locked")
        self.s3.create_bucket(Bucket=self.bucket, ObjectLockEnabledForBucket=True)
        self.target = {"Bucket": self.bucket, "Key": "k"}

    def put(self, **more: Any) -> dict[str, str]:
        """Store a version; return how it is named."""
        found = self.s3.put_object(**self.target, Body=b"x", **more)
        return {**self.target, "VersionId": found["VersionId"]}

    def lockOf(self, **named: Any) -> tuple[Any, Any, Any]:
        """Return mode, date and hold, which HEAD, GET and the subresources agree on."""
        named = named or self.target
        head, read = self.s3.head_object(**named), self.s3.get_object(**named)
        names = ("ObjectLockMode", "ObjectLockRetainUntilDate", "ObjectLockLegalHoldStatus")
        mode, until, hold = (head.get(name) for name in names)
        self.assertEqual((mode, until, hold), tuple(read.get(name) for name in names))
        if mode is None:
            self.assertFails("NoSuchObjectLockConfiguration", "get_object_retention", **named)
        else:
            found = self.s3.get_object_retention(**named)["Retention"]
            self.assertEqual(found, {"Mode": mode, "RetainUntilDate": until})
        if hold is None:
            self.assertFails("NoSuchObjectLockConfiguration", "get_object_legal_hold", **named)
        else:
            found = self.s3.get_object_legal_hold(**named)["LegalHold"]
            self.assertEqual(found, {"Status": hold})
        return mode, until, hold

    def assertFails(self, code: str, operation: str, **named: Any) -> str:
        """A call of boto3 is refused; return the message."""
        with self.assertRaises(ClientError) as caught:
            getattr(self.s3, operation)(**named)
        error = caught.exception.response["Error"]
        self.assertEqual(error["Code"], code, error)
        message: str = error["Message"]
        return message

    def configure(self, document: str, bucket: str = "") -> Any:
        """Send a configuration as it is."""
        target = f"/{bucket or self.bucket}?object-lock"
        return self.sendSigned(Outgoing("PUT", target, {}, document.encode()))


class ConfigurationTests(LockCase):
    """The object lock of buckets."""

    def test_created(self) -> None:
        """A bucket that is created with it is versioned, and cannot be suspended."""
        found = self.s3.get_object_lock_configuration(Bucket=self.bucket)
        self.assertEqual(found["ObjectLockConfiguration"], {"ObjectLockEnabled": "Enabled"})
        self.assertEqual(self.s3.get_bucket_versioning(Bucket=self.bucket)["Status"], "Enabled")
        self.assertFails(
            "InvalidBucketState",
            "put_bucket_versioning",
            Bucket=self.bucket,
            VersioningConfiguration={"Status": "Suspended"},
        )
        name = self.makeName("wrong")
        answer = self.sendSigned(
            Outgoing("PUT", f"/{name}", {"x-amz-bucket-object-lock-enabled": "yes"})
        )
        self.assertAnswer(answer, 400, "InvalidArgument")

    def test_enabledLater(self) -> None:
        """A bucket gets it where versioning is enabled, and its default comes and goes."""
        bucket = self.makeBucket("later")
        named = {"Bucket": bucket, "ObjectLockConfiguration": rule(GOVERNANCE, Years=2)}
        missing = "ObjectLockConfigurationNotFoundError"
        self.assertFails(missing, "get_object_lock_configuration", Bucket=bucket)
        self.assertFails("InvalidBucketState", "put_object_lock_configuration", **named)
        for status in ("Suspended", "Enabled"):
            self.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
            if status == "Suspended":
                self.assertFails("InvalidBucketState", "put_object_lock_configuration", **named)
        for configuration in (rule(GOVERNANCE, Years=2), {"ObjectLockEnabled": "Enabled"}):
            named["ObjectLockConfiguration"] = configuration
            self.s3.put_object_lock_configuration(**named)
            found = self.s3.get_object_lock_configuration(Bucket=bucket)
            self.assertEqual(found["ObjectLockConfiguration"], configuration)

    def test_malformed(self) -> None:
        """A document that is no configuration is refused, and so is a period out of bounds."""
        enabled = "<ObjectLockEnabled>Enabled</ObjectLockEnabled>"
        default = "<Rule><DefaultRetention>{}</DefaultRetention></Rule>"
        for content, code in (
            ("", "MalformedXML"),
            ("<ObjectLockEnabled>Disabled</ObjectLockEnabled>", "MalformedXML"),
            ("<ObjectLockEnabled>enabled</ObjectLockEnabled>", "MalformedXML"),
            (default.format("<Mode>GOVERNANCE</Mode><Days>1</Days>"), "MalformedXML"),
            (enabled + enabled, "MalformedXML"),
            (f"{enabled}<Rule/>", "MalformedXML"),
            *(
                (enabled + default.format(text), code)
                for text, code in (
                    ("<Mode>GOVERNANCE</Mode>", "MalformedXML"),
                    ("<Days>1</Days>", "MalformedXML"),
                    ("<Mode>governance</Mode><Days>1</Days>", "MalformedXML"),
                    ("<Mode>GOVERNANCE</Mode><Days>1</Days><Years>1</Years>", "MalformedXML"),
                    ("<Mode>GOVERNANCE</Mode><Days>soon</Days>", "MalformedXML"),
                    ("<Mode>GOVERNANCE</Mode><Days>0</Days>", "InvalidArgument"),
                    ("<Mode>GOVERNANCE</Mode><Days>-1</Days>", "InvalidArgument"),
                    ("<Mode>GOVERNANCE</Mode><Days>36501</Days>", "InvalidArgument"),
                    ("<Mode>GOVERNANCE</Mode><Years>101</Years>", "InvalidArgument"),
                )
            ),
        ):
            document = f"<ObjectLockConfiguration>{content}</ObjectLockConfiguration>"
            self.assertAnswer(self.configure(document), 400, code)
        self.assertAnswer(self.configure("<Lock/>"), 400, "MalformedXML")
        self.assertEqual(
            self.s3.get_object_lock_configuration(Bucket=self.bucket)["ObjectLockConfiguration"],
            {"ObjectLockEnabled": "Enabled"},
        )

    def test_defaults(self) -> None:
        """PUT, copy, form and completion get the default of their moment; names win over it."""
        self.s3.put_object_lock_configuration(
            Bucket=self.bucket, ObjectLockConfiguration=rule(GOVERNANCE, Days=3)
        )
        self.put()
        mode, until, hold = self.lockOf()
        self.assertEqual((mode, hold), (GOVERNANCE, None))
        self.assertLess(abs((until - inDays(3)).total_seconds()), 30)
        date = inDays(1)
        self.put(ObjectLockMode=COMPLIANCE, ObjectLockRetainUntilDate=date)
        self.assertEqual(self.lockOf(), (COMPLIANCE, date, None))
        copied = {"Bucket": self.bucket, "Key": "copy"}
        self.s3.copy_object(**copied, CopySource=self.target)
        self.assertEqual(self.lockOf(**copied)[0], GOVERNANCE)
        self.s3.put_object_lock_configuration(
            Bucket=self.bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled"}
        )
        self.s3.copy_object(**copied, CopySource=self.target)
        self.assertEqual(self.lockOf(**copied), (None, None, None))
        self.s3.copy_object(**copied, CopySource=self.target, ObjectLockLegalHoldStatus="ON")
        self.assertEqual(self.lockOf(**copied), (None, None, "ON"))

    def test_completions(self) -> None:
        """An upload has the lock that it was created with, or the default of its completion."""
        date = inDays(1)
        named = {"ObjectLockMode": COMPLIANCE, "ObjectLockRetainUntilDate": date}
        for more, mode in ((named, COMPLIANCE), ({}, GOVERNANCE)):
            upload = self.s3.create_multipart_upload(**self.target, **more)["UploadId"]
            place = {**self.target, "UploadId": upload}
            part = self.s3.upload_part(**place, PartNumber=1, Body=b"part")
            self.s3.put_object_lock_configuration(
                Bucket=self.bucket, ObjectLockConfiguration=rule(GOVERNANCE, Days=3)
            )
            parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
            self.s3.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
            self.assertEqual(self.lockOf()[0], mode)


class VersionLockTests(LockCase):
    """The locks of versions."""

    def test_headers(self) -> None:
        """A mode and a date belong together; what is no value is refused, and nothing stored."""
        mode, until = "x-amz-object-lock-mode", "x-amz-object-lock-retain-until-date"
        late = "2099-01-01T00:00:00Z"
        for headers in (
            {mode: GOVERNANCE},
            {until: late},
            {mode: "governance", until: late},
            {mode: GOVERNANCE, until: "2001-01-01T00:00:00Z"},
            {mode: GOVERNANCE, until: "soon"},
            {mode: GOVERNANCE, until: "4070908800"},
            {mode: GOVERNANCE, until: "9999-12-31T23:59:59.5Z"},
            {"x-amz-object-lock-legal-hold": "on"},
        ):
            for more in ({}, {"x-amz-copy-source": f"{self.bucket}/k"}):
                outgoing = Outgoing("PUT", f"/{self.bucket}/k", {**headers, **more})
                self.assertAnswer(self.sendSigned(outgoing), 400, "InvalidArgument")
            outgoing = Outgoing("POST", f"/{self.bucket}/k?uploads", headers)
            self.assertAnswer(self.sendSigned(outgoing), 400, "InvalidArgument")
        self.assertNotIn("Versions", self.s3.list_object_versions(Bucket=self.bucket))

    def test_withoutLock(self) -> None:
        """All of it is refused where the bucket has no object lock."""
        target = {"Bucket": self.makeBucket("plain"), "Key": "k"}
        self.s3.put_object(**target, Body=b"x")
        retention = {"Mode": GOVERNANCE, "RetainUntilDate": inDays(1)}
        headers = {"ObjectLockMode": GOVERNANCE, "ObjectLockRetainUntilDate": inDays(1)}
        for operation, more in (
            ("put_object", headers),
            ("put_object", {"ObjectLockLegalHoldStatus": "ON"}),
            ("copy_object", {**headers, "CopySource": target}),
            ("create_multipart_upload", headers),
            ("get_object_retention", {}),
            ("put_object_retention", {"Retention": retention}),
            ("get_object_legal_hold", {}),
            ("put_object_legal_hold", {"LegalHold": {"Status": "ON"}}),
        ):
            message = self.assertFails("InvalidRequest", operation, **target, **more)
            self.assertEqual(message, _MISSING)

    def test_deletes(self) -> None:
        """A locked version is not removed by its id; a plain DELETE puts a marker above it."""
        held = self.put(ObjectLockLegalHoldStatus="ON")
        date = inDays(1)
        governed = self.put(ObjectLockMode=GOVERNANCE, ObjectLockRetainUntilDate=date)
        complied = self.put(ObjectLockMode=COMPLIANCE, ObjectLockRetainUntilDate=date)
        marker = self.s3.delete_object(**self.target)
        self.assertTrue(marker["DeleteMarker"])
        for each in (held, governed, complied):
            message = self.assertFails("AccessDenied", "delete_object", **each)
            self.assertEqual(message, "Access Denied because object protected by object lock.")
        for each in (held, complied):
            more = {"BypassGovernanceRetention": True}
            self.assertFails("AccessDenied", "delete_object", **each, **more)
        names = [
            {"Key": "k", "VersionId": each["VersionId"]}
            for each in (held, governed, complied, marker)
        ]
        for bypass, removed in ((False, {3}), (True, {1, 3})):
            found = self.s3.delete_objects(
                Bucket=self.bucket, Delete={"Objects": names}, BypassGovernanceRetention=bypass
            )
            gone = {each["VersionId"] for each in found["Deleted"]}
            self.assertEqual(gone, {names[n]["VersionId"] for n in removed})
            codes = {each["Code"] for each in found["Errors"]}
            self.assertEqual(codes, {"AccessDenied"})
        self.s3.put_object_legal_hold(**held, LegalHold={"Status": "OFF"})
        self.s3.delete_object(**held)
        self.assertFails("BucketNotEmpty", "delete_bucket", Bucket=self.bucket)

    def test_retention(self) -> None:
        """Governance gives way to a bypass; compliance is only extended."""
        governed, soon, later = self.put(), inDays(1), inDays(2)

        def retain(mode: str, date: datetime) -> dict[str, Any]:
            return {"Retention": {"Mode": mode, "RetainUntilDate": date}}

        bypass = {"BypassGovernanceRetention": True}
        put = self.s3.put_object_retention
        put(**governed, **retain(GOVERNANCE, soon))
        put(**governed, **retain(GOVERNANCE, later))
        for change in (retain(GOVERNANCE, soon), retain(COMPLIANCE, later), {"Retention": {}}):
            self.assertFails("AccessDenied", "put_object_retention", **governed, **change)
        put(**governed, **retain(GOVERNANCE, soon), **bypass)
        self.assertEqual(self.lockOf(**governed), (GOVERNANCE, soon, None))
        put(**governed, Retention={}, **bypass)
        self.assertEqual(self.lockOf(**governed), (None, None, None))
        put(**governed, **retain(COMPLIANCE, soon))
        for change in (
            retain(GOVERNANCE, later),
            retain(COMPLIANCE, inDays(0.5)),
            {"Retention": {}},
        ):
            self.assertFails("AccessDenied", "put_object_retention", **governed, **change, **bypass)
        put(**governed, **retain(COMPLIANCE, later))
        self.assertEqual(self.lockOf(**governed), (COMPLIANCE, later, None))
        self.assertFails(
            "InvalidArgument",
            "put_object_retention",
            **self.put(),
            **retain(GOVERNANCE, inDays(-1)),
        )
        self.assertFails(
            "NoSuchKey",
            "put_object_retention",
            **{**self.target, "Key": "none"},
            **retain(GOVERNANCE, soon),
        )

    def test_documents(self) -> None:
        """A document that is none is refused."""
        self.put()
        date = "<RetainUntilDate>2099-01-01T00:00:00Z</RetainUntilDate>"
        for selector, document in (
            ("retention", f"<Retention><Mode>governance</Mode>{date}</Retention>"),
            ("retention", "<Retention><Mode>GOVERNANCE</Mode></Retention>"),
            ("retention", f"<Retention>{date}</Retention>"),
            ("legal-hold", "<LegalHold><Status>on</Status></LegalHold>"),
            ("legal-hold", "<LegalHold/>"),
        ):
            answer = self.sendSigned(
                Outgoing("PUT", f"/{self.bucket}/k?{selector}", {}, document.encode())
            )
            self.assertAnswer(answer, 400, "MalformedXML")

    def test_legalHold(self) -> None:
        """A hold is placed and released, on a version or the current one."""
        old, new = self.put(), self.put()
        self.s3.put_object_legal_hold(**old, LegalHold={"Status": "ON"})
        self.s3.put_object_legal_hold(**self.target, LegalHold={"Status": "OFF"})
        self.assertEqual(self.lockOf(**old), (None, None, "ON"))
        self.assertEqual(self.lockOf(**new), (None, None, "OFF"))
        self.s3.delete_object(**new)
        self.assertEqual(self.lockOf(), (None, None, "ON"))


class FormLockTests(FormCase):
    """Locks in forms."""

    def test_fields(self) -> None:
        """The fields of a form lock its object, and are judged as headers are."""
        self.bucket = self.makeName("locked")
        self.s3.create_bucket(Bucket=self.bucket, ObjectLockEnabledForBucket=True)
        date = inDays(1)
        fields = {
            "x_amz_object_lock_mode": GOVERNANCE,
            "x_amz_object_lock_retain_until_date": f"{date:%Y-%m-%dT%H:%M:%SZ}",
            "x_amz_object_lock_legal_hold": "ON",
        }
        self.assertEqual(self.post(**fields).status, 204)
        found = self.s3.head_object(Bucket=self.bucket, Key="form")
        self.assertEqual(found["ObjectLockRetainUntilDate"], date)
        self.assertEqual(found["ObjectLockLegalHoldStatus"], "ON")
        fields["x_amz_object_lock_mode"] = "governance"
        self.assertAnswer(self.post(**fields), 400, "InvalidArgument")
        # A form is locked by its fields, not by the head of its request.
        held = {"x-amz-object-lock-legal-hold": "ON"}
        self.assertAnswer(self.post(held), 501, "NotImplemented")


class DecisionTests(AccessCase):
    """Who may lock, and pass over a retention."""

    def setUp(self) -> None:
        """Have a bucket of ann's with object lock, in which bob may do some things."""
        super().setUp()
        self.bucket = self.makeName("locked")
        self.ann.create_bucket(Bucket=self.bucket, ObjectLockEnabledForBucket=True)
        self.allowed = ["s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion"]
        self.retained = {"ObjectLockMode": GOVERNANCE, "ObjectLockRetainUntilDate": inDays(2)}

    def put(self, **more: Any) -> dict[str, str]:
        """Store a version as ann; return how it is named."""
        found = self.ann.put_object(Bucket=self.bucket, Key="k", Body=b"x", **more)
        return {"Key": "k", "VersionId": found["VersionId"]}

    def allow(self, *actions: str, **changed: Any) -> None:
        """Let bob do some things."""
        self.setPolicy(statement(self.bucket, {"AWS": "acbob"}, *actions, **changed))

    def test_bypass(self) -> None:
        """A bypass needs its own action; with it governance gives way, in a list of keys too."""
        named = self.put(**self.retained)
        for more, status in (((), 403), (("s3:BypassGovernanceRetention",), 204)):
            self.allow(*self.allowed, *more)
            self.assertEqual(self.status(self.bob, "delete_object", **named), 403)
            many = {"Delete": {"Objects": [named]}, "BypassGovernanceRetention": True}
            found = self.bob.delete_objects(Bucket=self.bucket, **many)
            self.assertEqual("Errors" in found, status == 403, found)
            named = named if status == 403 else self.put(**self.retained)
            bypass = {**named, "BypassGovernanceRetention": True}
            self.assertEqual(self.status(self.bob, "delete_object", **bypass), status)
        self.setPolicy(statement(self.bucket, "*", "s3:BypassGovernanceRetention", Effect="Deny"))
        bypass = {**self.put(**self.retained), "BypassGovernanceRetention": True}
        self.assertEqual(self.status(self.ann, "delete_object", **bypass), 403)

    def test_actions(self) -> None:
        """Headers of locks, and the subresources, need their own actions."""
        self.allow("s3:PutObject")
        put = {"Key": "k", "Body": b"x"}
        hold = {"LegalHold": {"Status": "ON"}}
        self.assertEqual(self.status(self.bob, "put_object", **put), 200)
        for more in (self.retained, {"ObjectLockLegalHoldStatus": "ON"}):
            self.assertEqual(self.status(self.bob, "put_object", **put, **more), 403)
        self.assertEqual(self.status(self.bob, "put_object_legal_hold", Key="k", **hold), 403)
        self.assertEqual(self.status(self.bob, "get_object_legal_hold", Key="k"), 403)
        self.allow("s3:PutObject", "s3:PutObjectLegalHold", "s3:GetObjectLegalHold")
        self.assertEqual(
            self.status(self.bob, "put_object", **put, ObjectLockLegalHoldStatus="OFF"), 200
        )
        self.assertEqual(self.status(self.bob, "put_object_legal_hold", Key="k", **hold), 200)
        self.assertEqual(self.status(self.bob, "get_object_legal_hold", Key="k"), 200)
        self.assertEqual(self.status(self.bob, "get_object_retention", Key="k"), 403)

    def test_visible(self) -> None:
        """Who may only read an object does not see its lock, or the half of it that is open."""
        self.put(**self.retained, ObjectLockLegalHoldStatus="ON")
        names = ("ObjectLockMode", "ObjectLockRetainUntilDate", "ObjectLockLegalHoldStatus")
        for more, seen in (
            ((), ()),
            (("s3:GetObjectRetention",), names[:2]),
            (("s3:GetObjectLegalHold",), names[2:]),
        ):
            self.allow("s3:GetObject", *more)
            for client, expected in ((self.bob, seen), (self.ann, names)):
                for read in (client.get_object, client.head_object):
                    found = read(Bucket=self.bucket, Key="k")
                    self.assertEqual([each for each in names if each in found], list(expected))

    def test_visibleTags(self) -> None:
        """Who may only read an object does not see how many tags it has."""
        named = self.put(Tagging="a=1&b=2")
        for more, seen, ofVersion in (
            ((), None, None),
            (("s3:GetObjectTagging",), 2, None),
            (("s3:GetObjectVersionTagging",), None, 2),
        ):
            self.allow("s3:GetObject", "s3:GetObjectVersion", *more)
            for read in (self.bob.get_object, self.bob.head_object):
                self.assertEqual(read(Bucket=self.bucket, Key="k").get("TagCount"), seen)
                found = read(Bucket=self.bucket, **named)
                self.assertEqual(found.get("TagCount"), ofVersion)
        self.assertEqual(self.ann.get_object(Bucket=self.bucket, **named)["TagCount"], 2)

    def test_conditions(self) -> None:
        """Policies bound the lock that a header or a document names."""
        self.setPolicy(
            statement(
                self.bucket,
                "*",
                "s3:PutObjectRetention",
                Effect="Deny",
                Condition={"NumericGreaterThan": {"s3:object-lock-remaining-retention-days": "7"}},
            ),
            statement(
                self.bucket,
                "*",
                "s3:PutObjectLegalHold",
                Effect="Deny",
                Condition={"StringEquals": {"s3:object-lock-legal-hold": "OFF"}},
            ),
        )
        self.put()
        for days, status in ((2, 200), (30, 403)):
            date = inDays(days)
            more = {"ObjectLockMode": GOVERNANCE, "ObjectLockRetainUntilDate": date}
            found = self.status(self.ann, "put_object", Key="k", Body=b"x", **more)
            self.assertEqual(found, status)
            retention = {"Mode": GOVERNANCE, "RetainUntilDate": date}
            found = self.status(self.ann, "put_object_retention", Key="k", Retention=retention)
            self.assertEqual(found, status)
        for text, status in (("ON", 200), ("OFF", 403)):
            hold = {"Status": text}
            found = self.status(self.ann, "put_object_legal_hold", Key="k", LegalHold=hold)
            self.assertEqual(found, status)


class ToolTests(LockCase):
    """A program that knows of locks."""

    @long("takes seconds")
    def test_awscli(self) -> None:
        """aws-cli sets and reads what keeps a version, and meets it."""
        environment = awsEnvironment(self.endpoint, self.makeDirectory())
        program, named = needProgram("aws"), self.put()

        def aws(command: str, *arguments: str) -> str:
            place = ("--bucket", self.bucket, "--key", "k", "--version-id", named["VersionId"])
            return runTool([program, "s3api", command, *place, *arguments], environment)

        date = f"{inDays(1):%Y-%m-%dT%H:%M:%SZ}"
        aws("put-object-retention", "--retention", f"Mode=GOVERNANCE,RetainUntilDate={date}")
        self.assertIn(GOVERNANCE, aws("get-object-retention"))
        aws("put-object-legal-hold", "--legal-hold", "Status=ON")
        self.assertIn('"ON"', aws("get-object-legal-hold"))
        self.assertFails("AccessDenied", "delete_object", **named)
        aws("put-object-legal-hold", "--legal-hold", "Status=OFF")
        aws("delete-object", "--bypass-governance-retention")
        self.assertNotIn("Versions", self.s3.list_object_versions(Bucket=self.bucket))
