"""
Call a method by the invoker again and again, with all its steps on and no wire.

    python -m bench.gateway.invoker SECONDS
"""

import sys
import time
from typing import Any

from bench.gateway.recipe import TEXT
from bench.loads import prints, report
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
    cpu = time.process_time()
    calls, took = measure(float(seconds))
    cpu = time.process_time() - cpu
    print(prints(report([took / calls], took, cpu, requests=calls)))


if __name__ == "__main__":
    main(sys.argv[1])
