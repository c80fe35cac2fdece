"""
Call a method by the invoker again and again, with all its steps on and no wire.

    python invoking.py SECONDS

Prints a JSON object: calls, and the seconds that they took.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.gatewaycases import TEXT
from storagegate.auth.authentication import readAuthentication
from storagegate.core.context import ClientInfo, RequestContext
from storagegate.core.definitions import readService
from storagegate.core.invoker import CallCredentials, Invoker
from storagegate.gateway.metrics import CallMetrics
from storagegate.gateway.transports.registry import defaultRules
from storagegate.telemetry.tracecontext import newTracing

BATCH = 500
"""Calls between two looks at the clock."""

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string", "required": True}}}


async def echo(request: Any, context: Any) -> Any:
    """Answer what was asked."""
    return request


async def passOn(request: Any, context: Any, next: Any) -> Any:
    """Do nothing of one's own."""
    return await next(request, context)


def makeInvoker() -> Invoker:
    """Make an invoker with a service that has everything that a service may have."""
    keys = {"key": {"sub": "ann"}}
    validate = {"validate": lambda key, context: keys.get(key)}
    invoker = Invoker(
        readAuthentication({"providers": {"apikey": validate}}, defaultRules()), [CallMetrics()]
    )
    definition = {
        "name": "Echo",
        "methods": {"echo": {"handler": echo, "input": _SCHEMA, "output": _SCHEMA}},
        "middleware": [passOn],
        "authentication": {
            "required": True,
            "authorize": lambda user, method, request: user["sub"] == "ann",
        },
        "rateLimit": {"requests": 1_000_000_000, "window": 60_000},
    }
    invoker.add(readService(definition))
    return invoker


def callOnce(invoker: Invoker, client: ClientInfo, credentials: CallCredentials) -> Any:
    """Make a call that waits for nothing; give its result."""
    context = RequestContext("tcp", "Echo", "echo", client, newTracing())
    try:
        invoker.call(context, {"text": TEXT}, credentials).send(None)
    except StopIteration as returned:
        return returned.value
    raise RuntimeError("the call waits for something")


def measure(seconds: float) -> tuple[int, float]:
    """Give how many calls were made, and how long they took."""
    invoker, client = makeInvoker(), ClientInfo("c", "127.0.0.1", 1)
    credentials = CallCredentials("key")
    if callOnce(invoker, client, credentials) != {"text": TEXT}:
        raise RuntimeError("the call is not answered as it should be")
    calls, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        for _ in range(BATCH):
            callOnce(invoker, client, credentials)
        calls += BATCH
    return calls, took


def main(seconds: str) -> None:
    """Run as a program."""
    calls, took = measure(float(seconds))
    print(json.dumps({"calls": calls, "seconds": took}))


if __name__ == "__main__":
    main(sys.argv[1])
