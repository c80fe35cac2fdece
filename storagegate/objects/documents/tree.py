"""A document of a setting as a tree of named members, independent of its text."""

from collections.abc import Collection, Iterable

from msgspec import Struct

from storagegate.objects.errors import MalformedDocument


class Document(Struct, frozen=True):
    """
    A member of a document, or the whole document.

    @ivar text: The text of a member without members.
    @ivar kind: The type of a grantee; empty for all other members.
    @ivar isList: Whether the parent may have several members of this name.
    """

    name: str
    text: str = ""
    members: tuple["Document", ...] = ()
    kind: str = ""
    isList: bool = False

    def all(self, name: str) -> list["Document"]:
        """Return the members of a name."""
        return [each for each in self.members if each.name == name]

    def only(self, name: str) -> "Document | None":
        """
        Return the member of a name, if there is one.

        @raise MalformedDocument: There are several.
        """
        found = self.all(name)
        if len(found) > 1:
            raise MalformedDocument()
        return found[0] if found else None

    def textOf(self, name: str) -> str | None:
        """Return the text of the only member of a name; L{None} if there is none."""
        found = self.only(name)
        return None if found is None else found.text

    def check(self, names: Collection[str]) -> None:
        """
        Check that all members are known.

        @raise MalformedDocument: An unknown member might restrict the known ones.
        """
        if any(each.name not in names for each in self.members):
            raise MalformedDocument()

    def byName(self, names: Collection[str]) -> dict[str, "Document"]:
        """
        Return the members by name.

        @raise MalformedDocument: A name is unknown or repeated.
        """
        self.check(names)
        found = {each.name: each for each in self.members}
        if len(found) < len(self.members):
            raise MalformedDocument()
        return found

    def texts(self, names: Collection[str]) -> dict[str, str]:
        """
        Return the texts of the members by name, without white space at their ends.

        @raise MalformedDocument: A name is unknown or repeated.
        """
        return {name: each.text.strip() for name, each in self.byName(names).items()}


def group(name: str, members: Iterable[Document], isList: bool = False) -> Document:
    """Make a member with members."""
    return Document(name, members=tuple(members), isList=isList)


def pairs(**texts: object) -> tuple[Document, ...]:
    """Make members with texts; without those that are L{None}."""
    return tuple(Document(name, str(text)) for name, text in texts.items() if text is not None)
