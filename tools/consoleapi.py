"""
Print the API of the console, C{docs/consoleapi.rst}, as the table that routes it has it.

Usage: C{python tools/consoleapi.py > docs/consoleapi.rst}.
"""

import csv
import sys
from collections.abc import Iterator, Mapping
from io import StringIO
from types import UnionType
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import fields

from storagegate.console.operations import OPERATIONS, PREFIX, APIOperation

_INTRODUCTION = f"""\
The API of the console
======================

.. Printed by tools/consoleapi.py: change storagegate/console/operations.py, not this page.

All paths are below ``/console/{PREFIX}`` of the admin listener, or of ``consoleUrl``; `the console
<console.rst>`_ says how requests are authenticated. ``GET openapi.json`` describes the same with
all types.

All documents are JSON. Times are in milliseconds since 1970, sizes in bytes. A request with an
unknown field or parameter is refused with 400. An error is ``{{"error", "message", "details"}}``
with the codes of `the gateway <gateway.rst>`_. A list has ``items`` or ``objects``, and ``next``:
pass it as ``after`` to get the next page; it is null on the last page. In the paths below,
percent-encode each segment in braces, including its slashes, and write ``~.`` and ``~..`` for the
segments ``.`` and ``..``.

The role of a call is the lowest role that may make it; the policy of the key decides as well, as
over S3. A call without a role needs no session, or has its own proof, as tickets do. A parameter
of the query has a question mark before it.

"""


def page() -> str:
    """Give the whole page."""
    modules: dict[str, list[APIOperation]] = {}
    for operation in OPERATIONS:
        modules.setdefault(operation.handler.partition(":")[0], []).append(operation)
    parts = [_INTRODUCTION]
    for name, operations in modules.items():
        parts.append(_table(name, operations))
    return "\n".join(parts)


def _table(name: str, operations: list[APIOperation]) -> str:
    written = StringIO()
    csv.writer(written, lineterminator="\n").writerows(_row(each) for each in operations)
    lines = [f".. csv-table:: {name}", "    :header: call, role, takes, gives, what", ""]
    return "\n".join([*lines, *(f"    {line}" for line in written.getvalue().splitlines()), ""])


def _row(operation: APIOperation) -> tuple[str, ...]:
    types = operation.types
    taken = [f"?{each}" for each in _names(types, "query")] + _names(types, "body")
    return (
        f"``{operation.method} {operation.path}``",
        f"``{operation.least}``" if operation.least else "",
        ", ".join(f"``{each}``" for each in taken),
        ", ".join(f"``{each}``" for each in _names(types, "return")),
        operation.summary,
    )


def _names(types: Mapping[str, Any], name: str) -> list[str]:
    """Give the fields of a type, those of each member of a union once."""
    return list(dict.fromkeys(_fields(types.get(name))))


def _fields(found: Any) -> Iterator[str]:
    members = get_args(found) if isinstance(found, UnionType) else (found,)
    for member in members:
        if isinstance(member, type) and issubclass(member, Struct):
            yield from (each.encode_name for each in fields(member))


if __name__ == "__main__":
    sys.stdout.write(page())
