"""
The heads of requests to the gateways of instances::

    POST {basePath}/{Service}/{method} HTTP/1.1
    Host, Content-Type, and Content-Length or Transfer-Encoding
    Authorization, and the field of API keys    who calls, as the caller said it
    X-Deadline-Ms                               how long the caller waits
    traceparent, tracestate                     where the call belongs
    X-Forwarded-For                             the caller's address, behind those before it
    X-Gateway-Hops                              how many gateways have sent it on

What a caller wrote goes out only where it can be a field: nobody writes lines of his own into it.
"""

import re
from math import ceil
from urllib.parse import quote

from storagegate.core.context import MAX_DEADLINE_MS, MAX_TOKEN_LENGTH, RequestContext, Tracing
from storagegate.core.errors import codedError
from storagegate.core.invocation import CallCredentials
from storagegate.core.scalars import parseDecimal
from storagegate.core.tracing import formatTraceparent
from storagegate.discovery.instances import Instance, formatPlace

_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")

# Wires on which the token came in a field of its own, which is passed on as it was.
_WITH_FIELDS = ("http", "grpc")

# As many as a head of 16 KiB can bear beside all else; whoever needs more has a loop of proxies.
_MAX_FORWARDED = 2 * 1024

HOPS = "X-Gateway-Hops"

MAX_HOPS = 5
"""Gateways in a row. An instance that discovery leads back to itself would go on for ever."""


class RequestHeads:
    """Writes the heads of the calls of one service."""

    def __init__(self, basePath: str, service: str, apiKeyHeader: str) -> None:
        self._path = f"{basePath}/{quote(service, safe='')}/"
        self._apiKeyHeader = apiKeyHeader

    def write(
        self,
        instance: Instance,
        context: RequestContext,
        tracing: Tracing,
        leftSeconds: float | None,
        length: int | None,
    ) -> bytes:
        """
        Write a head.

        @param tracing: The trace as the instance is to see it.
        @param leftSeconds: How long somebody waits for the answer; C{None} for ever.
        @param length: Bytes of the body; C{None} for a stream.
        @raise ServiceError: C{INTERNAL_ERROR} if the call goes in circles.
        """
        place = formatPlace(instance.host, instance.port)
        lines = [
            f"POST {self._path}{quote(context.method, safe='')} HTTP/1.1",
            f"Host: {place}",
            f"traceparent: {formatTraceparent(tracing)}",
            f"{HOPS}: {_hops(context) + 1}",
        ]
        if length is None:
            lines.append("Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked")
        else:
            lines.append(f"Content-Type: application/json\r\nContent-Length: {length}")
        if leftSeconds is not None:
            ms = min(MAX_DEADLINE_MS, max(1, ceil(leftSeconds * 1000)))
            lines.append(f"X-Deadline-Ms: {ms}")
        for name, value in self._fields(context):
            if value and _VALUE.fullmatch(value) is not None:
                lines.append(f"{name}: {value}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    def _fields(self, context: RequestContext) -> list[tuple[str, str | None]]:
        headers = context.headers
        known = context.credentials
        credentials = known if isinstance(known, CallCredentials) else CallCredentials()
        if context.protocol in _WITH_FIELDS:
            token, key = headers.get("authorization"), headers.get(self._apiKeyHeader.lower())
        else:
            # Messages have one place for both: it is for the instance to say which of them it is.
            key = credentials.token
            token = f"Bearer {key}" if key else None
        return [
            ("Authorization", _short(token)),
            (self._apiKeyHeader, _short(credentials.apiKey or key)),
            ("tracestate", context.tracing.state),
            ("X-Forwarded-For", _forwarded(headers.get("x-forwarded-for"), context)),
        ]


def _hops(context: RequestContext) -> int:
    """Tell how many gateways have sent the call on."""
    try:
        hops = parseDecimal(context.headers.get(HOPS.lower(), "0"), MAX_HOPS)
    except ValueError:
        hops = MAX_HOPS
    if hops >= MAX_HOPS:
        # No fault of the instance: it is not tried again elsewhere.
        raise codedError("INTERNAL_ERROR", f"{context.service} is forwarded in circles")
    return hops


def _short(value: str | None) -> str | None:
    """Leave out what is too long for any provider, and might be for the head."""
    return None if value is None or len(value) > MAX_TOKEN_LENGTH + 7 else value


def _forwarded(before: str | None, context: RequestContext) -> str | None:
    address = context.client.address
    if before and len(before) <= _MAX_FORWARDED and context.protocol in _WITH_FIELDS:
        return f"{before}, {address}"
    return address
