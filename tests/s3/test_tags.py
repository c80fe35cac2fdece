"""Tags in header fields and documents."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.documents.fields import tagsOfHeader
from storagegate.objects.tags import OBJECT_TAGS, checkedTags, encodeTags
from tests.s3.clientparser import parseAnswer
from tests.s3.refusals import refusalOf
from tests.s3.settingdocuments import readTagging, tagging
from tests.s3.xml.test_reader_documents import serialize

_CHARACTER = st.characters(codec="utf-8", categories=["L", "N", "Zs"]) | st.sampled_from("+-=._:/@")
_KEY = st.text(_CHARACTER, min_size=1, max_size=64).filter(
    lambda key: not key.lower().startswith("aws:")
)
TAGS = st.dictionaries(_KEY, st.text(_CHARACTER, max_size=128), max_size=10)
"""Tags that every object may have."""


class HeaderTests(SynchronousTestCase):
    """C{x-amz-tagging}."""

    def test_parse(self) -> None:
        """Pairs are decoded as a query is; what has neither key nor value is no tag."""
        for header, tags in (
            (b"", {}),
            (b"&", {}),
            (b"a=b", {"a": "b"}),
            (b" a=b&c=d ", {"a": "b", "c": "d"}),
            (b"a", {"a": ""}),
            (b"a=&&b", {"a": "", "b": ""}),
            (b"a=b=c", {"a": "b=c"}),
            (b"a+b=c%2Bd%20e", {"a b": "c+d e"}),
            ("Größe=東京".encode(), {"Größe": "東京"}),
            (b"Gr%C3%B6%C3%9Fe=1", {"Größe": "1"}),
        ):
            self.assertEqual(tagsOfHeader(header), tags, header)

    def test_refused(self) -> None:
        """What is not encoded well is C{InvalidArgument}, what breaks a rule C{InvalidTag}."""
        for header in (b"a=%", b"a=%zz", b"%ff=a", b"\xff"):
            error = refusalOf(tagsOfHeader, header)
            self.assertEqual(error.code, "InvalidArgument")
            self.assertEqual(error.fields["ArgumentName"], "x-amz-tagging")
        for header in (b"=a", b"a=1&a=2", b"a%26=1", b"aws:a=1"):
            error = refusalOf(tagsOfHeader, header)
            self.assertEqual(error.code, "InvalidTag")

    @given(tags=TAGS)
    def test_encoded(self, tags: dict[str, str]) -> None:
        """What was encoded is read again."""
        header = encodeTags(tags)
        self.assertTrue(header.isascii())
        found = tagsOfHeader(header.encode())
        self.assertEqual(list(found.items()), list(tags.items()))


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
