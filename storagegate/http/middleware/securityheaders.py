"""
Headers that tell browsers to be careful.

A policy is an option by the name of its header: C{True} or left out, its default; C{False}, no
header; a mapping as Helmet's, or for those with one word the word itself, another value.
"""

from collections.abc import Mapping
from typing import Any

from storagegate.core.options import takesMapping
from storagegate.http.layers import MiddlewareHandler
from storagegate.http.middleware.csp import contentPolicy
from storagegate.http.response import checkFields

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
_FRAMES = ("SAMEORIGIN", "DENY")

# A year, in seconds: what browsers' preload lists ask for.
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
    Make the middleware that sets Helmet's headers.

    @param contentSecurityPolicy: C{{"directives": {name: sources}, "useDefaults": True,
        "reportOnly": False}}; see L{contentPolicy
        <storagegate.http.middleware.csp.contentPolicy>}.
    @param strictTransportSecurity: C{{"maxAge": seconds, "includeSubDomains": True,
        "preload": False}}.
    @param xDnsPrefetchControl: C{{"allow": False}}.
    @raise ValueError: If a value is none that browsers know.
    @raise TypeError: If an option, or a part of one, is of the wrong kind or has a wrong name.
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
        _permitted(xPermittedCrossDomainPolicies),
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
    """Give the parts of an option, C{None} if it is switched off."""
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
    """Read an option with one word; the first is the default."""
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
    if isinstance(option, Mapping) and isinstance(option.get("action"), str):
        option = {**option, "action": option["action"].upper().replace("-", "")}
    elif isinstance(option, str):
        option = option.upper().replace("-", "")
    return _word("X-Frame-Options", option, _FRAMES, "action")


def _permitted(option: object) -> Header:
    header = "X-Permitted-Cross-Domain-Policies"
    return _word(header, option, _PERMITTED, "permittedPolicies")


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
            raise ValueError(f"Referrer-Policy has no word {word!r}")
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
