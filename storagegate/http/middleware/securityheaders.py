"""
Browser security: C{securityHeaders} sets Helmet's headers, C{sameOrigin} refuses requests caused by
another site (CSRF).

Each option of C{securityHeaders} is named after its header: C{True}, the default, sets the default
value; C{False} omits the header; a mapping as in Helmet, or a word for a policy of one word, sets
another value.

C{sameOrigin} relies on header fields that no page can set: C{Sec-Fetch-Site}, in every browser
since 2023, and C{Origin} in older ones.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from storagegate.core.invoker import Hook, adaptHandler
from storagegate.core.options import OptionError, takesMapping
from storagegate.http.dispatch import MiddlewareHandler
from storagegate.http.errors import HTTPError
from storagegate.http.fields import checkFields

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
_CAPITAL = re.compile(r"(?=[A-Z])")

# All printable ASCII except the comma and the semicolon, which end a policy or a directive.
_SOURCE = re.compile(r"[\x20-\x2b\x2d-\x3a\x3c-\x7e]*")

# Keywords, which would be host names without their quotes.
_KEYWORD = re.compile(
    r"none|self|strict-dynamic|report-sample|inline-speculation-rules|unsafe-inline|unsafe-eval"
    r"|unsafe-hashes|wasm-unsafe-eval|(?:nonce|sha256|sha384|sha512)-.*"
)

Source = str | Hook
Directives = dict[str, tuple[Source, ...]]
MakePolicy = Callable[[Any, Any], tuple[str, str]]


def contentPolicy(option: object) -> tuple[tuple[str, str] | None, MakePolicy | None]:
    """
    Parse the option C{contentSecurityPolicy}.

    Names are C{scriptSrc} or C{script-src}; a value is a source, a list of them, C{None} to drop a
    default, or an empty list for a directive without sources. A policy without C{default-src}
    allows everything that it does not name, so only C{False} drops C{default-src}. A source may be
    a function of C{(req, res)} that returns one, such as a nonce.

    @return: The header if it is constant, otherwise a function that makes it for a request.
    @raise ValueError: If a directive is invalid.
    @raise TypeError: If the option has the wrong type or an unknown setting.
    """
    settings = _settings(
        "contentSecurityPolicy", option, ("directives", "useDefaults", "reportOnly")
    )
    if settings is None:
        return None, None
    header = "Content-Security-Policy"
    if settings.get("reportOnly", False):
        header += "-Report-Only"
    directives = _readDirectives(
        settings.get("directives") or {}, bool(settings.get("useDefaults", True))
    )
    if any(callable(source) for sources in directives.values() for source in sources):
        return None, lambda req, res: (header, _write(directives, req, res))
    return (header, _write(directives, None, None)), None


def _readDirectives(given: Mapping[str, Any], useDefaults: bool) -> Directives:
    directives: Directives = dict(_DEFAULTS) if useDefaults else {}
    seen = set()
    for written, value in given.items():
        if not isinstance(written, str) or not _NAME.fullmatch(written):
            raise ValueError(f"{written!r} is not the name of a directive")
        name = _CAPITAL.sub("-", written[0].lower() + written[1:]).lower()
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
        raise ValueError("a Content-Security-Policy needs a default-src, or False for it")
    return directives


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
    policy = []
    for name, sources in directives.items():
        texts = [
            each if isinstance(each, str) else _check(name, each(req, res)) for each in sources
        ]
        policy.append(" ".join([name, *texts]))
    return ";".join(policy)


Policy = bool | str | Mapping[str, Any]

_OPENER = ("same-origin", "same-origin-allow-popups", "noopener-allow-popups", "unsafe-none")
_RESOURCE = ("same-origin", "same-site", "cross-origin")
_EMBEDDER = ("require-corp", "credentialless", "unsafe-none")
_PERMITTED = ("none", "master-only", "by-content-type", "all")
_REFERRER = (
    "no-referrer",
    "no-referrer-when-downgrade",
    "same-origin",
    "origin",
    "strict-origin",
    "origin-when-cross-origin",
    "strict-origin-when-cross-origin",
    "unsafe-url",
    "",
)

# A year, in seconds: the minimum of browsers' preload lists.
_STRICT_SECONDS = 31_536_000


@takesMapping
def securityHeaders(
    *,
    contentSecurityPolicy: bool | Mapping[str, Any] = True,
    crossOriginEmbedderPolicy: Policy = False,
    crossOriginOpenerPolicy: Policy = True,
    crossOriginResourcePolicy: Policy = True,
    originAgentCluster: bool = True,
    referrerPolicy: Policy | list[str] = True,
    strictTransportSecurity: bool | Mapping[str, Any] = True,
    xContentTypeOptions: bool = True,
    xDnsPrefetchControl: bool | Mapping[str, Any] = True,
    xDownloadOptions: bool = True,
    xFrameOptions: Policy = True,
    xPermittedCrossDomainPolicies: Policy = True,
    xXssProtection: bool = True,
) -> MiddlewareHandler:
    """
    Make middleware that sets Helmet's headers.

    @param contentSecurityPolicy: C{{"directives": {name: sources}, "useDefaults": True,
        "reportOnly": False}}; see L{contentPolicy
        <storagegate.http.middleware.securityheaders.contentPolicy>}.
    @param strictTransportSecurity: C{{"maxAge": seconds, "includeSubDomains": True,
        "preload": False}}.
    @param xDnsPrefetchControl: C{{"allow": False}}.
    @raise ValueError: If browsers do not support a value.
    @raise TypeError: If an option or a setting has the wrong type or an unknown name.
    """
    policy, makePolicy = contentPolicy(contentSecurityPolicy)
    values = (
        policy,
        _word("Cross-Origin-Embedder-Policy", crossOriginEmbedderPolicy, _EMBEDDER),
        _word("Cross-Origin-Opener-Policy", crossOriginOpenerPolicy, _OPENER),
        _word("Cross-Origin-Resource-Policy", crossOriginResourcePolicy, _RESOURCE),
        _fixed("Origin-Agent-Cluster", originAgentCluster, "?1"),
        _referrer(referrerPolicy),
        _strictTransport(strictTransportSecurity),
        _fixed("X-Content-Type-Options", xContentTypeOptions, "nosniff"),
        _prefetch(xDnsPrefetchControl),
        _fixed("X-Download-Options", xDownloadOptions, "noopen"),
        _frames(xFrameOptions),
        _word(
            "X-Permitted-Cross-Domain-Policies",
            xPermittedCrossDomainPolicies,
            _PERMITTED,
            "permittedPolicies",
        ),
        _fixed("X-XSS-Protection", xXssProtection, "0"),
    )
    fixed = checkFields(value for value in values if value is not None)

    def secure(req: Any, res: Any, next: Any) -> Any:
        res.setChecked(fixed)
        if makePolicy is not None:
            res.header(*makePolicy(req, res))
        return next()

    return secure


Header = tuple[str, str] | None


def _fixed(header: str, option: object, value: str) -> Header:
    if not isinstance(option, bool):
        raise TypeError(f"{header} is on or off: True or False, not {option!r}")
    return (header, value) if option else None


def _settings(header: str, option: object, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the settings of an option, or C{None} if it is off."""
    if option is False:
        return None
    if option is True:
        return {}
    if not isinstance(option, Mapping):
        raise TypeError(f"{header} is True, False or a mapping, not {option!r}")
    unknown = sorted(set(option) - set(names))
    if unknown:
        raise TypeError(f"{header} has no setting {unknown[0]!r}; it has {', '.join(names)}")
    return dict(option)


def _word(header: str, option: object, words: tuple[str, ...], name: str = "policy") -> Header:
    """Parse an option of one word; the first word is the default."""
    if isinstance(option, str):
        option = {name: option}
    settings = _settings(header, option, (name,))
    if settings is None:
        return None
    word = settings.get(name, words[0])
    if word not in words:
        raise ValueError(f"{header} is one of {', '.join(words)}, not {word!r}")
    return header, word


def _frames(option: object) -> Header:
    settings = {"action": option} if isinstance(option, str) else option
    if isinstance(settings, Mapping) and isinstance(settings.get("action"), str):
        settings = {**settings, "action": settings["action"].upper().replace("-", "")}
    return _word("X-Frame-Options", settings, ("SAMEORIGIN", "DENY"), "action")


def _prefetch(option: object) -> Header:
    settings = _settings("X-DNS-Prefetch-Control", option, ("allow",))
    if settings is None:
        return None
    return "X-DNS-Prefetch-Control", "on" if settings.get("allow") else "off"


def _referrer(option: object) -> Header:
    if isinstance(option, str | list):
        option = {"policy": option}
    settings = _settings("Referrer-Policy", option, ("policy",))
    if settings is None:
        return None
    policy = settings.get("policy", "no-referrer")
    words = [policy] if isinstance(policy, str) else list(policy)
    for word in words:
        if word not in _REFERRER:
            raise ValueError(f"{word!r} is not a value of Referrer-Policy")
    if not words or len(set(words)) < len(words):
        raise ValueError("Referrer-Policy is one word, or several different ones")
    return "Referrer-Policy", ",".join(words)


def _strictTransport(option: object) -> Header:
    header = "Strict-Transport-Security"
    settings = _settings(header, option, ("maxAge", "includeSubDomains", "preload"))
    if settings is None:
        return None
    seconds = settings.get("maxAge", _STRICT_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e15:
        raise ValueError(f"maxAge of {header} is a number of seconds, not {seconds!r}")
    value = f"max-age={int(seconds)}"
    if settings.get("includeSubDomains", True):
        value += "; includeSubDomains"
    if settings.get("preload", False):
        value += "; preload"
    return header, value


_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""The safe methods of RFC 9110 section 9.2.1, which change no state and need no protection."""

_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#@\s:]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


@takesMapping
def sameOrigin(*, allow: Iterable[str] = ()) -> MiddlewareHandler:
    """
    Make middleware that refuses requests from another site with the cookies of this one.

    GET, HEAD, OPTIONS, TRACE, requests without a cookie and non-browser clients pass. The scheme of
    C{Origin} is not checked, as it is unknown behind a proxy.

    @param allow: Other allowed origins, such as C{"https://admin.example.com"}.
    @raise OptionError: If an item is not an origin.
    """
    if isinstance(allow, str):
        raise OptionError("the option allow is a list of origins")
    allowed = set()
    for text in allow:
        origin = parseOrigin(text) if isinstance(text, str) else None
        if origin is None:
            raise OptionError(f"the option allow has {text!r}, which is not scheme://host[:port]")
        allowed.add(origin)

    def handle(req: Any, res: Any, next: Any) -> Any:
        if req.method not in _SAFE and _isForeign(req.headers, req.host, allowed):
            raise HTTPError(403, "This request comes from another site", code="origin.foreign")
        return next()

    return handle


Origin = tuple[str, str, str]
"""Scheme, host and port, in lower case."""


def parseOrigin(text: str) -> Origin | None:
    """Parse an origin (RFC 6454 section 6.2); return C{None} for C{null} and malformed ones."""
    match = _ORIGIN.fullmatch(text.lower())
    if match is None:
        return None
    scheme, host, port = match.groups()
    return scheme, host, port or _DEFAULT_PORTS.get(scheme, "")


def _isForeign(headers: Any, host: str | None, allowed: set[Origin]) -> bool:
    if headers.get("cookie") is None:
        return False
    site = headers.get("sec-fetch-site")
    if site in ("same-origin", "none"):
        return False
    text = headers.get("origin")
    if text is None:
        return site is not None
    origin = parseOrigin(text)
    if origin is None:
        return True
    if origin in allowed:
        return False
    return site is not None or parseOrigin(f"{origin[0]}://{host}") != origin
