"""
The HTTP framework: applications as Express has them, on Twisted.

The public names are imported when they are first asked for: an application pays for the
middleware that it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storagegate.http.errors import HTTPError as HTTPError
    from storagegate.http.router import Router as Router

_MIDDLEWARE = "storagegate.http.middleware."

_HOMES = {
    "HTTPError": "storagegate.http.errors",
    "Headers": "storagegate.http.fetchheaders",
    "MemoryRateLimitStore": "storagegate.core.ratestores",
    "MemorySessionStore": "storagegate.http.sessions.memory",
    "Request": "storagegate.http.fetch",
    "Response": "storagegate.http.fetch",
    "Router": "storagegate.http.router",
    "SQLiteSessionStore": "storagegate.http.sessions.sqlite",
    "SharedRateLimitStore": "storagegate.core.sharedrates",
    "SharedTable": "storagegate.core.sharedtable",
    "compression": _MIDDLEWARE + "compression",
    "cors": _MIDDLEWARE + "cors",
    "json": _MIDDLEWARE + "json",
    "rateLimit": _MIDDLEWARE + "ratelimit",
    "raw": _MIDDLEWARE + "raw",
    "requestLog": _MIDDLEWARE + "requestlog",
    "sameOrigin": _MIDDLEWARE + "sameorigin",
    "securityHeaders": _MIDDLEWARE + "securityheaders",
    "session": _MIDDLEWARE + "session",
    "staticFiles": _MIDDLEWARE + "staticfiles",
    "text": _MIDDLEWARE + "text",
    "upload": _MIDDLEWARE + "upload",
    "urlencoded": _MIDDLEWARE + "urlencoded",
}

__all__ = [
    "HTTPError",
    "Headers",
    "MemoryRateLimitStore",
    "MemorySessionStore",
    "Request",
    "Response",
    "Router",
    "SQLiteSessionStore",
    "SharedRateLimitStore",
    "SharedTable",
    "compression",
    "cors",
    "json",
    "rateLimit",
    "raw",
    "requestLog",
    "sameOrigin",
    "securityHeaders",
    "session",
    "staticFiles",
    "text",
    "upload",
    "urlencoded",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
