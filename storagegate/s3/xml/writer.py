"""
XML in S3's form: declaration, root, escaped text, and times.

A document is joined from strings: documents are flat and their names are known, and a listing of
1,000 keys takes 1.2 ms, instead of 8 ms as a tree. Times are in whole seconds: a listing and the
C{Last-Modified} of an object must name the same moment.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storagegate.objects.documents.tree import Document

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'

# Characters that XML 1.0 text cannot contain unescaped. A carriage return is allowed, but a parser
# reads it as a line feed; the ranges from \ud800 on cannot be represented in XML 1.0 at all.
_UNSAFE = re.compile('[&<>"\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]')
_NAMED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"}
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

_unsafe = _UNSAFE.search


def _reference(match: re.Match[str]) -> str:
    character = match.group()
    return _NAMED.get(character) or f"&#x{ord(character):x};"


def escape(text: str) -> str:
    """
    Escape text for an element.

    Characters that XML 1.0 does not allow become references such as C{&#x1;}, as in S3: most
    parsers refuse these, so clients with such keys request C{encoding-type=url}.
    """
    if _unsafe(text) is None:
        return text
    return _UNSAFE.sub(_reference, text)


def escapeReadable(text: str) -> str:
    """Escape text so that every parser can read it: invalid characters become U+FFFD."""
    return escape(_UNWRITABLE.sub("\ufffd", text))


def element(name: str, text: str) -> str:
    """Return an element with text."""
    return f"<{name}>{escape(text)}</{name}>"


def optional(name: str, text: str | None) -> str:
    """Return an element with text, or an empty text if there is none."""
    return f"<{name}>{escape(text)}</{name}>" if text else ""


def documentStart(root: str, namespace: str = NAMESPACE) -> str:
    """
    Return the beginning of a document, including the start tag of its root.

    @param namespace: The namespace; empty for none, as in errors.
    """
    attribute = f' xmlns="{namespace}"' if namespace else ""
    return f"{_DECLARATION}<{root}{attribute}>"


def document(root: str, content: str, namespace: str = NAMESPACE) -> bytes:
    """
    Return a whole document.

    @param content: The XML content of the root element.
    @param namespace: The namespace; empty for none, as in errors.
    """
    return f"{documentStart(root, namespace)}{content}</{root}>".encode()


_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"


def writeDocument(content: "Document") -> bytes:
    """Return the document of a setting."""
    return document(content.name, "".join(map(_member, content.members)) or escape(content.text))


def _member(member: "Document") -> str:
    kind = f' xmlns:xsi="{_INSTANCE}" xsi:type="{member.kind}"' if member.kind else ""
    text = "".join(map(_member, member.members)) or escape(member.text)
    return f"<{member.name}{kind}>{text}</{member.name}>"
