"""Errors as answers over HTTP."""

from collections.abc import Mapping
from typing import Any

from twisted.logger import Logger

from storagegate.core.errors import ServiceError
from storagegate.gateway.codecs import JSON
from storagegate.gateway.host import GatewayHost
from storagegate.gateway.shapes import httpError, httpFields

JSON_FIELD = {"content-type": ("Content-Type", "application/json; charset=utf-8")}

_log = Logger()


def sendError(host: GatewayHost, res: Any, error: ServiceError) -> None:
    """Answer with an error."""
    status, body = writeError(host, error)
    if not res.reopen():
        return
    res.header(httpFields(error))
    res.status(status).setChecked(JSON_FIELD)
    res.end(body)


def writeError(host: GatewayHost, error: ServiceError) -> tuple[int, bytes]:
    """Give the status and the body of an error."""
    described = host.describe(error, "http")
    if isinstance(described, ServiceError):
        status, shape = httpError(described)
    else:
        status, shape = _ownShape(described, error)
    if not isinstance(status, int) or not 400 <= status <= 599:
        _log.error("{status} is not the status of an error", status=status)
        status = 500
    try:
        return status, JSON.encode(shape)
    except ValueError:
        _log.failure("the details of an error cannot be written")
        return status, JSON.encode({"error": str(error.code), "message": str(error.message)})


def _ownShape(described: Mapping[str, Any], error: ServiceError) -> tuple[Any, Any]:
    """Read what a hook made of an error: a body, or a status and a body."""
    if "body" in described and described.keys() <= {"status", "statusCode", "body"}:
        status = described.get("status", described.get("statusCode", error.statusCode))
        return status, described["body"]
    return error.statusCode, dict(described)
