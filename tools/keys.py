"""
Print every key of the configuration, C{docs/keys.rst}, as the code has it.

Usage: C{python tools/keys.py > docs/keys.rst}.

Names, defaults and meanings are those of the table of keys and of the classes of options; what a
value has to be is what its reader says when it refuses one.
"""

import csv
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Any, get_args

import attrs

from storagegate.auth.authentication import PROVIDERS, readRules
from storagegate.auth.jwt import JWTOptions
from storagegate.auth.oauth import OAuthOptions
from storagegate.auth.tokens import APIKeyOptions
from storagegate.cluster.options import ClusterOptions
from storagegate.console.issueroptions import IssuerOptions
from storagegate.core.definitions import RateLimit, readRateLimit
from storagegate.core.options import MERGED
from storagegate.daemon.config import CLUSTER_VARIABLES, VAULT_VARIABLES
from storagegate.daemon.configkeys import KEYS, Key
from storagegate.daemon.gatewayservice import LISTENER_OPTIONS
from storagegate.gateway.gateway import ErrorOptions
from storagegate.gateway.monitoring import MonitoringOptions
from storagegate.gateway.transports.registry import defaultRules, loadReference, transports
from storagegate.objects.encryption.masterkeys.options import (
    AppRoleLoginOptions,
    KubernetesLoginOptions,
    VaultOptions,
)
from storagegate.upstream.options import DiscoveryOptions

GROUPS: Mapping[str, Mapping[str, type]] = {
    "Transports": {row.name: loadReference(row.options) for row in transports()},
    "Authentication": {
        "authentication.providers.jwt": JWTOptions,
        "authentication.providers.apikey": APIKeyOptions,
        "authentication.providers.oauth": OAuthOptions,
    },
    "Errors and limits": {"errorHandling": ErrorOptions, "rateLimit": RateLimit},
    "Metrics, tracing and logs": {"monitoring": MonitoringOptions},
    "Discovery of services": {"discovery": DiscoveryOptions},
}
"""The classes of options, by the table of the file that has them, below the titles of the page."""

_INTRODUCTION = """\
Every key
=========

.. Printed by tools/keys.py: change the code that it reads, not this page.

`Configuration <configuration.rst>`_ describes the syntax of the file and the order of precedence.
A key with an empty default is not set. The column *SIGHUP* says whether SIGHUP applies a change of
the file: ``yes``; ``workers``, only if there are several workers, which it replaces; ``no``, the
change needs a restart.

Top level
---------

"""

_CLUSTER = """\
A store over several machines
-----------------------------

Without this table the store is embedded. A change takes a restart.

"""

_VAULT = """\
Master keys in Vault or OpenBao
-------------------------------

Without this table `the master keys <encryption.rst#master-keys>`_ are in a file. One of
``tokenFile`` (or ``token``), ``[vault.appRole]`` and ``[vault.kubernetes]`` is required. A change
takes a restart.

"""

_SIGN_IN = """\
Sign-in at issuers
------------------

`Sign-in at an issuer <signin.rst>`_ describes these tables. A change takes a restart, or a SIGHUP
if there are several workers. Replace ``NAME`` with a name of lower-case letters, digits and
hyphens.

"""

_GATEWAY = """\
The tables of the gateway
-------------------------

SIGHUP applies changes of these tables if there are several workers, as with ``workers`` above.
Write a function as ``"module:name"``. Replace words in capitals in the name of a table with your
own names.

"""

# Neither is a value of any option: readers of lengths take the object no more than others do.
_IMPOSSIBLE = (10**30, object())

_WORDS = {
    "True or False": "``true`` or ``false``",
    'a size such as "10mb"': 'bytes, or a size such as "10mb"',
    "a function": 'a function, "module:name"',
}
"""What readers say to programs, as one says it of the file."""

Read = Callable[[Any], Any]


def page() -> str:
    """Give the whole page."""
    parts = [_INTRODUCTION, _topLevel(), _CLUSTER, _clusterTable()]
    parts += [_VAULT, _vaultTables()]
    parts += [_SIGN_IN, _optionTable("[signIn.NAME]", IssuerOptions), _GATEWAY]
    for title, group in GROUPS.items():
        parts.append(f"{title}\n{'~' * len(title)}\n\n")
        for name, kind in group.items():
            parts.extend(_optionTable(*each) for each in tables(f"gateway.{name}", kind))
        if title == "Authentication":
            parts.append(_rules())
    return "".join(parts).rstrip("\n") + "\n"


def tables(name: str, kind: type) -> Iterator[tuple[str, type]]:
    """Give a table of options and all tables in it, each with the class that has its options."""
    yield f"[{name}]", kind
    for each in attrs.fields(kind):
        inner = _inner(each)
        if inner is None:
            continue
        if MERGED in each.metadata:
            yield from tables(f"{name}.{each.alias}", inner)
        elif each.alias.endswith("s") and _isMapping(each):
            own = each.alias.removesuffix("s").upper()
            yield from tables(f"{name}.{each.alias}.{own}", inner)
        else:
            yield f"[[{name}.{each.alias}]]", inner


def _inner(attribute: Any) -> type | None:
    """Give the class of the options in an option; C{None} where it is a value."""
    found = [each for each in _parts(attribute.type) if attrs.has(each)]
    isTable = MERGED in attribute.metadata or _isMapping(attribute) or _isList(attribute)
    return found[0] if found and isTable else None


def _parts(kind: Any) -> Iterator[Any]:
    yield kind
    for each in get_args(kind):
        yield from _parts(each)


def _isMapping(attribute: Any) -> bool:
    return "Mapping[" in str(attribute.type)


def _isList(attribute: Any) -> bool:
    return "tuple[" in str(attribute.type)


def _topLevel() -> str:
    header = ("key", "flag", "variable", "default", "value", "SIGHUP", "meaning")
    return _csvTable("", header, [_keyRow(key) for key in KEYS])


def _clusterTable() -> str:
    return _tableWithVariables("cluster", ClusterOptions, CLUSTER_VARIABLES)


def _vaultTables() -> str:
    found = [
        _tableWithVariables(title, kind, VAULT_VARIABLES)
        for title, kind in (
            ("vault", VaultOptions),
            ("vault.appRole", AppRoleLoginOptions),
            ("vault.kubernetes", KubernetesLoginOptions),
        )
    ]
    return "".join(found)


def _tableWithVariables(title: str, kind: type, variables: Mapping[str, str]) -> str:
    """Give a table of options some of which have variables."""
    header = ("option", "variable", "default", "value", "meaning")
    prefix = title.partition(".")[2]
    names = {name: variable for variable, name in variables.items()}
    meanings = ivars(kind)
    rows = []
    for each in attrs.fields(kind):
        if any(attrs.has(part) for part in _parts(each.type)):
            continue
        variable = names.get(f"{prefix}.{each.name}" if prefix else each.name, "")
        row = (_default(each), _value(kind, each), meanings[each.name])
        rows.append((_literal(each.name), _literal(variable) if variable else "", *row))
    return _csvTable(f"[{title}]", header, rows)


def _keyRow(key: Key) -> Sequence[str]:
    default = _literal(_toml(key.read(key.default))) if key.default else ""
    flag = _literal(f"--{key.name} {key.argument}") if key.argument else ""
    value = expected(key.read, "expected ")
    applied = "yes" if key.reloads else "no" if key.isShared else "workers"
    return (_literal(key.name), flag, _literal(key.variable), default, value, applied, key.meaning)


def _optionTable(title: str, kind: type) -> str:
    meanings = ivars(kind)
    rows = [
        (_literal(each.alias), _default(each), _value(kind, each), meanings[each.name])
        for each in attrs.fields(kind)
        if not (each.alias in LISTENER_OPTIONS and title.count(".") == 1)
        if MERGED not in each.metadata
    ]
    if not rows:
        return ""
    told = summary(kind)
    return f"{told}\n\n" + _csvTable(title, ("option", "default", "value", "meaning"), rows)


def _rules() -> str:
    rows = [
        (
            _literal(wire),
            _literal(_toml(providers)),
            "a list of " + ", ".join(_literal(each) for each in PROVIDERS),
            "the providers that may know who calls, in the order in which they are asked",
        )
        for wire, providers in readRules({}, defaultRules()).items()
    ]
    told = "Whom the wires ask.\n\n"
    header = ("option", "default", "value", "meaning")
    return told + _csvTable("[gateway.authentication.rules]", header, rows)


def _value(kind: type, attribute: Any) -> str:
    if kind is RateLimit:
        good = {each.name: 1 for each in attrs.fields(kind)}
        return expected(lambda value: readRateLimit("", {**good, attribute.name: value}))
    return expected(attribute.converter)


def expected(read: Read, before: str = "is ") -> str:
    """
    Give what a reader expects, by what it says of something else.

    @param before: What stands before that in its errors.
    """
    for value in _IMPOSSIBLE:
        try:
            read(value)
        except ValueError as error:
            text = str(error).partition(before)[2]
            return _WORDS.get(text, text)
    raise ValueError(f"{read} takes everything")


def _default(attribute: Any) -> str:
    default = attribute.default
    if default is attrs.NOTHING:
        return "required"
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return "" if default.takes_self else _literal(_toml(default.factory()))
    return "" if default is None else _literal(_toml(default))


def _toml(value: Any) -> str:
    if isinstance(value, Mapping) and not value:
        return "{}"
    if isinstance(value, bool | str):
        return json.dumps(value)
    if isinstance(value, int | float):
        return str(value)
    return f"[{', '.join(_toml(each) for each in value)}]"


def summary(kind: type) -> str:
    """Give the first paragraph of a class's docstring."""
    return plain((inspect.getdoc(kind) or "").partition("\n\n")[0])


def ivars(kind: type) -> dict[str, str]:
    """Return what the docstrings of a class and its bases say of its attributes."""
    meanings: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        text = inspect.cleandoc(each.__dict__.get("__doc__") or "")
        found = re.split(r"^@ivar (\w+):", text, flags=re.MULTILINE)
        meanings.update(zip(found[1::2], (plain(part) for part in found[2::2]), strict=True))
    return meanings


def plain(text: str) -> str:
    """Turn epytext into reStructuredText, on one line."""
    text = " ".join(text.split())
    found: list[str] = []
    position = 0
    for match in re.finditer(r"\b[CL]\{", text):
        if match.start() < position:
            continue
        end = _closing(text, match.end())
        # A link to an object is its name: the page has no objects.
        inside = text[match.end() : end].partition("<storagegate.")[0]
        found += [text[position : match.start()], _literal(inside)]
        position = end + 1
    return "".join([*found, text[position:]])


def _closing(text: str, start: int) -> int:
    """Find the brace that closes what is open at a position."""
    depth = 1
    for index in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if not depth:
            return index
    raise ValueError(f"a brace is not closed: {text}")


def _literal(text: str) -> str:
    return f"``{text}``"


def _csvTable(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    written = StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    lines = [f".. csv-table:: {title}".rstrip(), f"    :header: {', '.join(header)}", ""]
    lines += [f"    {line}" for line in written.getvalue().splitlines()]
    return "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    sys.stdout.write(page())
