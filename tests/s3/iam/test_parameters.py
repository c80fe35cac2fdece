"""The parameters of calls to IAM."""

from urllib.parse import urlencode

from hypothesis import given
from hypothesis import strategies as some
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.errors import ValidationError
from storagegate.objects.identities.answers import Tag
from storagegate.objects.identities.operations import (
    ContextEntry,
    CreateUser,
    ListPolicies,
    SimulateCustomPolicy,
    UntagUser,
    UpdateRole,
)
from storagegate.objects.identities.table import OPERATIONS
from storagegate.s3.errors import S3Error
from storagegate.s3.iam.apis import APIS
from storagegate.s3.iam.parameters import parseCall, readOperation

_NAMES = some.sampled_from(
    [
        "UserName",
        "Tags",
        "Tags.member.1.Key",
        "Tags.member.1.Value",
        "Tags.member.2147483648.Key",
        "TagKeys.member.1",
        "MaxItems",
        "OnlyAttached",
        "Path",
        "Nonsense",
    ]
)


def read(**parameters: str) -> object:
    """Read a call."""
    form = {name.replace("_", "."): text for name, text in parameters.items()}
    return readOperation(
        parseCall(urlencode({"Version": "2010-05-08", **form}).encode()), APIS["iam"]
    )


class ParameterTests(SynchronousTestCase):
    """Operations of forms."""

    def test_values(self) -> None:
        """Texts, numbers, truth values, lists and tags become the fields of the operation."""
        found = read(
            Action="CreateUser",
            UserName="ann",
            Tags_member_2_Value="d",
            Tags_member_2_Key="c",
            Tags_member_1_Key="a",
            Tags_member_1_Value="",
        )
        self.assertEqual(found, CreateUser(userName="ann", tags=(Tag("a", ""), Tag("c", "d"))))
        found = read(Action="UntagUser", UserName="ann", TagKeys_member_1="é", TagKeys_member_3="b")
        self.assertEqual(found, UntagUser(userName="ann", tagKeys=("é", "b")))
        found = read(Action="ListPolicies", OnlyAttached="TRUE", MaxItems="7")
        self.assertEqual(found, ListPolicies(onlyAttached=True, maxItems=7))
        found = read(Action="UpdateRole", RoleName="r", MaxSessionDuration="3600")
        self.assertEqual(found, UpdateRole(roleName="r", maxSessionDuration=3600))

    def test_rows(self) -> None:
        """Members with lists become values of their type."""
        entry = "ContextEntries_member_"
        found = read(
            Action="SimulateCustomPolicy",
            ActionNames_member_1="s3:GetObject",
            PolicyInputList_member_1="{}",
            **{f"{entry}2_ContextKeyName": "aws:username", f"{entry}2_ContextKeyValues": ""},
            **{f"{entry}1_ContextKeyName": "aws:TagKeys"},
            **{f"{entry}1_ContextKeyType": "stringList"},
            **{f"{entry}1_ContextKeyValues_member_2": "b"},
            **{f"{entry}1_ContextKeyValues_member_1": "a"},
        )
        entries = (
            ContextEntry("aws:TagKeys", ("a", "b"), "stringList"),
            ContextEntry("aws:username"),
        )
        expected = SimulateCustomPolicy(
            actionNames=("s3:GetObject",), policyInputList=("{}",), contextEntries=entries
        )
        self.assertEqual(found, expected)
        for wrong in (
            f"{entry}1",
            f"{entry}1_Nonsense",
            f"{entry}1_ContextKeyName_member_1",
            f"{entry}1_ContextKeyValues_member_x",
            f"{entry}1_ContextKeyType",
        ):
            with self.assertRaises(ValidationError):
                read(
                    Action="SimulateCustomPolicy",
                    ActionNames_member_1="s3:GetObject",
                    PolicyInputList_member_1="{}",
                    **{wrong: "a"},
                )

    def test_empty(self) -> None:
        """An SDK sends an empty list as an empty text."""
        found = read(Action="CreateUser", UserName="ann", Tags="")
        self.assertEqual(found, CreateUser(userName="ann"))

    def test_forms(self) -> None:
        """A form that is none, that repeats a parameter or has too many is refused."""
        for text in (
            b"Action",
            b"Action=a&Action=b",
            b"Action=%ff",
            b"Action=\xff",
            b"&".join(b"a%d=b" % number for number in range(1001)),
        ):
            self.assertRaises(ValidationError, parseCall, text)

    @given(
        some.sampled_from(sorted(OPERATIONS)),
        some.dictionaries(_NAMES, some.text(max_size=20), max_size=5),
    )
    def test_any(self, action: str, parameters: dict[str, str]) -> None:
        """Any parameters are an operation, or are refused with a reason."""
        form = urlencode({"Version": "2010-05-08", "Action": action, **parameters})
        try:
            found = readOperation(parseCall(form.encode()), APIS["iam"])
        except ValidationError:
            return
        except S3Error as error:
            self.assertEqual(error.code, "NotImplemented")
            return
        self.assertEqual(type(found), OPERATIONS[action])
