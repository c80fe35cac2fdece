"""The URI schemes of HTTP and their ports (RFC 9110 section 4.2)."""

from collections.abc import Mapping

HTTP = "http"

HTTPS = "https"

SCHEMES = (HTTP, HTTPS)

DEFAULT_PORTS: Mapping[str, int] = {HTTP: 80, HTTPS: 443}


def schemeOf(isSecure: bool) -> str:
    """Return the scheme of a request's URL."""
    return HTTPS if isSecure else HTTP
