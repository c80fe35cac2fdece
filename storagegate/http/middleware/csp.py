"""
Content-Security-Policy, from a mapping.

C{policy = directive *( ";" directive )}, C{directive = name *( SP source )} (CSP level 3, section
2.2).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from storagegate.core.invoker import Hook, adaptHandler

_DEFAULTS = {
    "default-src": ("'self'",),
    "base-uri": ("'self'",),
    "font-src": ("'self'", "https:", "data:"),
    "form-action": ("'self'",),
    "frame-ancestors": ("'self'",),
    "img-src": ("'self'", "data:"),
    "object-src": ("'none'",),
    "script-src": ("'self'",),
    "script-src-attr": ("'none'",),
    "style-src": ("'self'", "https:", "'unsafe-inline'"),
    "upgrade-insecure-requests": (),
}

_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_CAPITAL = re.compile(r"[A-Z]")

# What would end a directive or the policy, or not be ASCII.
_SOURCE = re.compile(r"[\x20-\x2b\x2d-\x3a\x3c-\x7e]*")

# Words that without their quotes are the names of hosts, which is never meant.
_KEYWORD = re.compile(
    r"none|self|strict-dynamic|report-sample|inline-speculation-rules|unsafe-inline|unsafe-eval"
    r"|unsafe-hashes|wasm-unsafe-eval|(?:nonce|sha256|sha384|sha512)-.*"
)

Source = str | Hook
Directives = dict[str, tuple[Source, ...]]
MakePolicy = Callable[[Any, Any], tuple[str, str]]


def contentPolicy(option: object) -> tuple[tuple[str, str] | None, MakePolicy | None]:
    """
    Read the option.

    Names are C{scriptSrc} or C{script-src}; a value is a source, a list of them, C{None} to drop a
    default, or an empty list for a directive without sources. A policy without C{default-src}
    allows whatever it does not name, so that one is dropped by C{False} only. A source may be a
    function of C{(req, res)} that gives one, such as a nonce.

    @return: The header if it is always the same; else what makes it for a request.
    @raise ValueError: If a directive is wrong.
    @raise TypeError: If the option is of the wrong kind or has an unknown setting.
    """
    if option is False:
        return None, None
    settings: Mapping[str, Any] = {} if option is True else _mapping(option)
    header = "Content-Security-Policy"
    if settings.get("reportOnly", False):
        header += "-Report-Only"
    directives = _readDirectives(
        settings.get("directives") or {}, bool(settings.get("useDefaults", True))
    )
    if any(callable(source) for sources in directives.values() for source in sources):
        return None, lambda req, res: (header, _write(directives, req, res))
    return (header, _write(directives, None, None)), None


def _mapping(option: object) -> Mapping[str, Any]:
    if not isinstance(option, Mapping):
        raise TypeError(f"contentSecurityPolicy is True, False or a mapping, not {option!r}")
    for name in option:
        if name not in ("directives", "useDefaults", "reportOnly"):
            raise TypeError(
                f"contentSecurityPolicy has no setting {name!r}; "
                "it has directives, useDefaults and reportOnly"
            )
    return option


def _readDirectives(given: Mapping[str, Any], useDefaults: bool) -> Directives:
    directives: Directives = dict(_DEFAULTS) if useDefaults else {}
    seen = set()
    for rawName, value in given.items():
        name = _readName(rawName)
        if name in seen:
            raise ValueError(f"the directive {name} is given twice")
        seen.add(name)
        if value is None or (value is False and name == "default-src"):
            directives.pop(name, None)
        else:
            directives[name] = _readSources(name, value)
    if not directives:
        raise ValueError("a Content-Security-Policy has at least one directive")
    if (
        "default-src" not in directives
        and given.get("default-src", given.get("defaultSrc")) is None
    ):
        raise ValueError("a Content-Security-Policy has a default-src, or says False for it")
    return directives


def _readName(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a directive")
    return _CAPITAL.sub(lambda letter: "-" + letter[0].lower(), name[0].lower() + name[1:])


def _readSources(name: str, value: object) -> tuple[Source, ...]:
    if isinstance(value, str) or callable(value):
        value = (value,)
    if not isinstance(value, list | tuple | set | frozenset):
        raise ValueError(f"{name} is a source or a list of sources, not {value!r}")
    return tuple(
        adaptHandler(source, f"a source of {name}") if callable(source) else _check(name, source)
        for source in value
    )


def _check(name: str, source: object) -> str:
    if not isinstance(source, str) or not _SOURCE.fullmatch(source):
        raise ValueError(f"{name} cannot have the source {source!r}")
    if _KEYWORD.fullmatch(source):
        raise ValueError(f"the source {source!r} of {name} needs quotes: \"'{source}'\"")
    return source


def _write(directives: Directives, req: Any, res: Any) -> str:
    return ";".join(
        " ".join(
            (
                name,
                *(
                    source if isinstance(source, str) else _check(name, source(req, res))
                    for source in sources
                ),
            )
        )
        for name, sources in directives.items()
    )
