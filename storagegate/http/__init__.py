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

_HOMES = {
    "HTTPError": "storagegate.http.errors",
    "Headers": "storagegate.http.fetch.headers",
    "MemoryRateLimitStore": "storagegate.core.ratelimit",
    "MemorySessionStore": "storagegate.http.sessions.memory",
    "Request": "storagegate.http.fetch.messages",
    "Response": "storagegate.http.fetch.messages",
    "Router": "storagegate.http.router",
    "SQLiteSessionStore": "storagegate.http.sessions.sqlite",
    "SharedRateLimitStore": "storagegate.core.ratelimit",
    "SharedTable": "storagegate.core.sharedtable",
    "compression": "storagegate.http.middleware.compression",
    "cors": "storagegate.http.middleware.cors",
    "json": "storagegate.http.middleware.bodyparser",
    "rateLimit": "storagegate.http.middleware.ratelimit",
    "raw": "storagegate.http.middleware.bodyparser",
    "requestLog": "storagegate.http.middleware.requestlog",
    "sameOrigin": "storagegate.http.middleware.sameorigin",
    "securityHeaders": "storagegate.http.middleware.securityheaders",
    "session": "storagegate.http.middleware.session",
    "staticFiles": "storagegate.http.middleware.staticfiles",
    "text": "storagegate.http.middleware.bodyparser",
    "upload": "storagegate.http.middleware.upload",
    "urlencoded": "storagegate.http.middleware.bodyparser",
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
