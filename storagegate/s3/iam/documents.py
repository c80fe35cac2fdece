"""
The documents of IAM and STS.

::

    document = NameResponse(NameResult(*field), ResponseMetadata(RequestId))
    field    = Name(text) / Name(*member(text / *field)) / Name(*field)

Fields of answers (L{storagegate.objects.identities.answers}) have Amazon's names, so each answer
has its document.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from storagegate.objects.dates import isoSeconds
from storagegate.s3.iam.parameters import amazonName
from storagegate.s3.xml.writer import document, element, escapeReadable


def answerDocument(name: str, answer: Struct | None, requestId: str, namespace: str) -> bytes:
    """
    Return the document of an answer.

    @param name: The name of the operation.
    @param answer: L{None} for an operation without an answer.
    @param namespace: The namespace of the API.
    """
    result = "" if answer is None else f"<{name}Result>{_fields(answer)}</{name}Result>"
    metadata = f"<ResponseMetadata>{element('RequestId', requestId)}</ResponseMetadata>"
    return document(f"{name}Response", result + metadata, namespace=namespace)


def _fields(value: Struct) -> str:
    pieces = []
    for field in value.__struct_fields__:
        found = getattr(value, field)
        if found is not None:
            name = amazonName(field)
            pieces.append(f"<{name}>{_content(field, found)}</{name}>")
    return "".join(pieces)


def _content(field: str, value: Any) -> str:
    if isinstance(value, Struct):
        return _fields(value)
    if isinstance(value, tuple):
        return "".join(f"<member>{_content('', each)}</member>" for each in value)
    if isinstance(value, Mapping):
        return "".join(
            f"<entry>{element('key', name)}{element('value', str(number))}</entry>"
            for name, number in value.items()
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    if field.endswith("Date"):
        return isoSeconds(value // 1000)
    if field.lower().endswith("document"):
        # As in Amazon's answers: SDKs decode it.
        return quote(value, safe="")
    return escapeReadable(str(value))
