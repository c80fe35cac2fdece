"""Tags in documents."""

from hypothesis import given
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.tags import OBJECT_TAGS, checkedTags
from tests.objects.test_tags import TAGS
from tests.s3.clientparser import parseAnswer
from tests.s3.refusals import refusalOf
from tests.s3.settingdocuments import readTagging, tagging
from tests.s3.xml.test_reader_documents import serialize


class DocumentTests(SynchronousTestCase):
    """C{Tagging}."""

    @given(tags=TAGS)
    def test_botocore(self, tags: dict[str, str]) -> None:
        """What boto3 sends is read, and what is written boto3 reads."""
        named = [{"Key": key, "Value": value} for key, value in tags.items()]
        for operation, target in (("PutObjectTagging", {"Key": "k"}), ("PutBucketTagging", {})):
            document = {"Tagging": {"TagSet": named}}
            body = serialize(operation, {"Bucket": "b", **target, **document})
            self.assertEqual(checkedTags(readTagging(body), OBJECT_TAGS), tags)
        found = parseAnswer("GetObjectTagging", tagging(tags))
        self.assertEqual(found["TagSet"], named)

    def test_malformed(self) -> None:
        """Each element is there exactly once, and nothing else is."""
        pair = "<Key>a</Key><Value>b</Value>"
        for content in (
            "",
            "<TagSet/><TagSet/>",
            "<Tags/>",
            "<TagSet/><Other/>",
            f"<TagSet><Other>{pair}</Other></TagSet>",
            "<TagSet><Tag/></TagSet>",
            "<TagSet><Tag><Key>a</Key></Tag></TagSet>",
            f"<TagSet><Tag>{pair}<Value>c</Value></Tag></TagSet>",
            "<TagSet><Tag><Key>a</Key><Other>b</Other></Tag></TagSet>",
            "<TagSet><Tag><Key>a</Key><Value><Deep/></Value></Tag></TagSet>",
        ):
            body = f"<Tagging>{content}</Tagging>".encode()
            self.assertEqual(refusalOf(readTagging, body).code, "MalformedXML")
        for body in (b"", b"<Tagging>", b"<Other/>", b" " * 65_537 + b"<Tagging/>"):
            self.assertEqual(refusalOf(readTagging, body).code, "MalformedXML")
        self.assertEqual(readTagging(b"<Tagging><TagSet/></Tagging>"), [])
