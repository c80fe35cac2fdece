"""Life cycles: the document, and the header fields of responses."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.lifecycle import (
    Calendar,
    Due,
    LifecycleRule,
)
from storagegate.s3.handlers.lifecycle import abortFields, expirationField
from tests.s3.refusals import refusalOf
from tests.s3.settingdocuments import readLifecycle, writeLifecycle


def configuration(*rules: str) -> bytes:
    """Write a document of rules."""
    inner = "".join(f"<Rule>{rule}</Rule>" for rule in rules)
    return f"<LifecycleConfiguration>{inner}</LifecycleConfiguration>".encode()


def rule(
    actions: str = "<Expiration><Days>1</Days></Expiration>",
    filters: str = "<Filter></Filter>",
    status: str = "Enabled",
    ruleId: str = "<ID>a</ID>",
) -> str:
    """Write the inside of a rule."""
    return f"{ruleId}{filters}<Status>{status}</Status>{actions}"


class ReadTests(SynchronousTestCase):
    """The document."""

    def refuse(self, code: str, *rules: str) -> None:
        """Check the code."""
        error = refusalOf(readLifecycle, configuration(*rules))
        self.assertEqual(error.code, code, rules)

    def assertRoundTrip(self, inner: str) -> LifecycleRule:
        """Check that a rule is written as it was read; return it."""
        (found,) = readLifecycle(configuration(inner))
        written = writeLifecycle([found])
        self.assertIn(f"<Rule>{inner}</Rule>".encode(), written)
        self.assertEqual(readLifecycle(written), (found,))
        return found

    def test_forms(self) -> None:
        """A rule is written in the form in which it came."""
        tag = "<Tag><Key>k</Key><Value>v w</Value></Tag>"
        sizes = (
            "<ObjectSizeGreaterThan>0</ObjectSizeGreaterThan>"
            "<ObjectSizeLessThan>5</ObjectSizeLessThan>"
        )
        for filters in (
            "<Prefix></Prefix>",
            "<Prefix>a/</Prefix>",
            "<Filter></Filter>",
            "<Filter><Prefix></Prefix></Filter>",
            f"<Filter>{tag}</Filter>",
            f"<Filter><And><Prefix>a</Prefix>{tag}{sizes}</And></Filter>",
            "<Filter><ObjectSizeLessThan>1</ObjectSizeLessThan></Filter>",
        ):
            self.assertRoundTrip(rule(filters=filters))

    def test_actions(self) -> None:
        """All actions."""
        found = self.assertRoundTrip(
            rule(
                "<Expiration><Date>2030-01-01T00:00:00.000Z</Date></Expiration>"
                "<NoncurrentVersionExpiration><NoncurrentDays>2</NoncurrentDays>"
                "<NewerNoncurrentVersions>100</NewerNoncurrentVersions>"
                "</NoncurrentVersionExpiration>"
                "<AbortIncompleteMultipartUpload><DaysAfterInitiation>3</DaysAfterInitiation>"
                "</AbortIncompleteMultipartUpload>"
            )
        )
        self.assertEqual(found.dateMs, 1_893_456_000_000)
        self.assertEqual((found.noncurrentDays, found.newer, found.abortDays), (2, 100, 3))
        for value in ("true", "false"):
            marker = f"<ExpiredObjectDeleteMarker>{value}</ExpiredObjectDeleteMarker>"
            found = self.assertRoundTrip(rule(f"<Expiration>{marker}</Expiration>"))
            self.assertIs(found.markers, value == "true")

    def test_dates(self) -> None:
        """A date is midnight UTC, however it is written."""
        for text in ("2030-01-01", "2030-01-01T00:00:00Z", "2030-01-01T02:00:00+02:00"):
            inner = rule(f"<Expiration><Date>{text}</Date></Expiration>")
            (found,) = readLifecycle(configuration(inner))
            self.assertEqual(found.dateMs, 1_893_456_000_000, text)

    def test_namelessRules(self) -> None:
        """A rule without an id gets one."""
        found = readLifecycle(configuration(rule(ruleId=""), rule(ruleId="<ID/>")))
        self.assertEqual(len({each.id for each in found} - {""}), 2)

    def test_malformed(self) -> None:
        """What is no document of rules."""
        marker = "<ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker>"
        date = "<Date>2030-01-01T00:00:00Z</Date>"
        tag = "<Tag><Key>k</Key><Value>v</Value></Tag>"
        self.refuse("MalformedXML")
        for wrong in (
            rule(status="enabled"),
            rule(status=""),
            rule(filters=""),
            rule(filters="<Filter/><Prefix/>"),
            rule(filters="<Filter/><Filter/>"),
            rule(filters=f"<Filter><Prefix>a</Prefix>{tag}</Filter>"),
            rule(filters=f"<Filter><And>{tag}</And></Filter>"),
            rule(filters=f"<Filter><Prefix/><And><Prefix/>{tag}</And></Filter>"),
            rule(filters="<Filter><Tag><Key>k</Key></Tag></Filter>"),
            rule(filters="<Filter><ObjectSizeLessThan>x</ObjectSizeLessThan></Filter>"),
            rule("<Expiration></Expiration>"),
            rule(f"<Expiration><Days>1</Days>{marker}</Expiration>"),
            rule(f"<Expiration>{date}{marker}</Expiration>"),
            rule(f"<Expiration>{date}<Days>1</Days></Expiration>"),
            rule("<Expiration><Days>1.5</Days></Expiration>"),
            rule("<Expiration><Days>99999999999</Days></Expiration>"),
            rule("<Expiration><Date>tomorrow</Date></Expiration>"),
            rule("<Expiration><Date>1893456000</Date></Expiration>"),
            rule("<Expiration><ExpiredObjectDeleteMarker/></Expiration>"),
            rule("<NoncurrentVersionExpiration/>"),
            rule(
                "<NoncurrentVersionExpiration><NewerNoncurrentVersions>1"
                "</NewerNoncurrentVersions></NoncurrentVersionExpiration>"
            ),
            rule("<AbortIncompleteMultipartUpload/>"),
        ):
            self.refuse("MalformedXML", wrong)
        self.refuse("InvalidRequest", rule(""))

    def test_unknown(self) -> None:
        """An element that is not known is refused: a rule without it would be about more."""
        tag = "<Tag><Key>k</Key><Value>v</Value></Tag>"
        for wrong in (
            rule() + "<Other/>",
            rule(filters="<Filter><Suffix>.tmp</Suffix></Filter>"),
            rule(filters=f"<Filter><And><Prefix>a</Prefix>{tag}<Suffix/></And></Filter>"),
            rule(filters="<Filter><Tag><Key>k</Key><Value>v</Value><Other/></Tag></Filter>"),
            rule("<Expiration><Days>1</Days><ExpiredObjectAllVersions/></Expiration>"),
            rule(
                "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays><Other/>"
                "</NoncurrentVersionExpiration>"
            ),
            rule(
                "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>"
                "<Other/></AbortIncompleteMultipartUpload>"
            ),
        ):
            self.refuse("MalformedXML", wrong)
        body = configuration(rule()).replace(b"</Rule>", b"</Rule><Other/>")
        self.assertEqual(refusalOf(readLifecycle, body).code, "MalformedXML")

    def test_invalid(self) -> None:
        """Values that are well-formed and not allowed."""
        newer = (
            "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays>"
            "<NewerNoncurrentVersions>{}</NewerNoncurrentVersions></NoncurrentVersionExpiration>"
        )
        for wrong in (
            rule("<Expiration><Days>0</Days></Expiration>"),
            rule("<Expiration><Days>-1</Days></Expiration>"),
            rule("<Expiration><Date>2030-01-01T00:00:01Z</Date></Expiration>"),
            rule("<Expiration><Date>9999-12-31T14:00:00-10:00</Date></Expiration>"),
            rule(
                "<NoncurrentVersionExpiration><NoncurrentDays>0</NoncurrentDays>"
                "</NoncurrentVersionExpiration>"
            ),
            rule(newer.format(0)),
            rule(newer.format(101)),
            rule(
                "<AbortIncompleteMultipartUpload><DaysAfterInitiation>0</DaysAfterInitiation>"
                "</AbortIncompleteMultipartUpload>"
            ),
            rule(ruleId=f"<ID>{'x' * 256}</ID>"),
        ):
            self.refuse("InvalidArgument", wrong)
        self.refuse("InvalidArgument", rule(), rule())
        readLifecycle(configuration(rule(ruleId=f"<ID>{'x' * 255}</ID>")))

    def test_unfit(self) -> None:
        """Conditions that an action cannot have."""
        tag = "<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>"
        size = "<Filter><ObjectSizeGreaterThan>1</ObjectSizeGreaterThan></Filter>"
        abort = (
            "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>"
            "</AbortIncompleteMultipartUpload>"
        )
        for filters in (tag, size):
            self.refuse("InvalidRequest", rule(abort, filters))
        self.refuse("InvalidRequest", *(rule(ruleId="") for _ in range(1001)))
        for name in ("Transition", "NoncurrentVersionTransition"):
            self.refuse("NotImplemented", rule(f"<{name}><Days>1</Days></{name}>"))
        reserved = "<Filter><Tag><Key>aws:k</Key><Value>v</Value></Tag></Filter>"
        self.refuse("InvalidTag", rule(filters=reserved))


class FieldTests(SynchronousTestCase):
    """Header fields of responses."""

    def test_fields(self) -> None:
        """What responses show."""
        due = Due(1_893_456_000_000, 'a "b"\r\n/ü')
        quoted = b"a%20%22b%22%0D%0A%2F%C3%BC"
        date = b"Tue, 01 Jan 2030 00:00:00 GMT"
        self.assertEqual(
            expirationField(due)[1], b'expiry-date="%b", rule-id="%b"' % (date, quoted)
        )
        self.assertEqual([value for _, value in abortFields(due)], [date, quoted])

    def test_last(self) -> None:
        """The latest date that is ever due can be shown."""
        longest = Calendar().after(0, 2**31 - 1)
        self.assertIn(b"Fri, 31 Dec 9999 23:59:59 GMT", expirationField(Due(longest, "r"))[1])
