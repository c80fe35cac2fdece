"""A few blocking requests, for tests that need no S3 client."""

import http.client
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.daemon import ACCESS_KEY, SECRET_KEY

# Longer than any request here takes on a busy machine.
REQUEST_SECONDS = 60.0

ROOT_HEADERS = {"x-storage-access-key": ACCESS_KEY, "x-storage-secret-key": SECRET_KEY}


def connect(address: tuple[str, int]) -> http.client.HTTPConnection:
    """Make a connection that opens with its first request."""
    return http.client.HTTPConnection(*address, timeout=REQUEST_SECONDS)


def request(
    address: tuple[str, int],
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = ROOT_HEADERS,
) -> tuple[int, bytes]:
    """Make one request as root on a new connection; return status and body."""
    connection = connect(address)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def getJSON(address: tuple[str, int], path: str) -> tuple[int, Any]:
    """Request a JSON document."""
    status, body = request(address, "GET", path, headers={})
    return status, json.loads(body)


def askUnix(path: Path, target: str = "/") -> int:
    """Request a page on a UNIX socket, without a key; return the status."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(REQUEST_SECONDS)
        # The kernel limits a socket path to 107 bytes.
        client.connect(os.path.relpath(path))
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        with client.makefile("rb") as answer:
            return int(answer.readline().split()[1])
