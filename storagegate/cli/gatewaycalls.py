"""Calls of another gateway by C{storagegate call --to}."""

import json
import os
import sys
from collections.abc import AsyncIterator
from threading import Thread
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from storagegate.cli.callinvocation import printEnd, readMetadata, readRequest, readToken
from storagegate.cli.invocation import MISUSED, UNREACHED, CommandError, Invocation
from storagegate.core.errors import ServiceError, errorBody
from storagegate.core.options import OptionError
from storagegate.gateway.client.client import (
    GatewayClientOptionsDict,
    RemoteGateway,
    createGatewayClient,
    readCredential,
)
from storagegate.net.endpoints import processReactor
from storagegate.net.http.lines import LineTooLong, NDJSONDecoder

_LINE_LIMIT = 1 << 20
"""Bytes of a request."""

_READ_BYTES = 64 * 1024


def callGateway(invocation: Invocation, service: str, method: str) -> int:
    """
    Call a method of a gateway, and print its results as they arrive.

    @return: The exit code.
    @raise CommandError: The flags are wrong.
    """
    reactor = processReactor()
    outcomes: list[Any] = []

    def begin() -> None:
        running = Deferred.fromCoroutine(_call(invocation, service, method, reactor))
        running.addBoth(outcomes.append)
        running.addBoth(lambda result: reactor.running and reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()
    if not outcomes:
        raise KeyboardInterrupt
    if isinstance(outcomes[0], Failure):
        outcomes[0].raiseException()
    code: int = outcomes[0]
    return code


def _createClient(invocation: Invocation, reactor: Any) -> RemoteGateway:
    """
    Make the client.

    @raise CommandError: The URL or a flag is wrong.
    """
    options = invocation.options
    given: GatewayClientOptionsDict = {**readCredential(readToken(invocation))}
    if options.cacert is not None:
        given["tls"] = {"caFile": options.cacert}
    try:
        return createGatewayClient(options.to, reactor=reactor, **given)
    except (ValueError, OptionError) as error:
        raise CommandError(f"--to {options.to}: {error}", MISUSED) from error


async def _call(invocation: Invocation, service: str, method: str, reactor: Any) -> int:
    options, output = invocation.options, invocation.output
    requests = _requests(options.request or [], reactor)
    data = None if options.stream else await _only(requests)
    began: float = reactor.seconds()
    items: list[dict[str, Any]] = []
    event: dict[str, Any] = {"at": "end", "data": None, "bytes": 0}

    def elapsed() -> float:
        now: float = reactor.seconds()
        return round((now - began) * 1000, 2)

    async with _createClient(invocation, reactor) as client:
        try:
            call = client.call(
                service,
                method,
                data,
                requests=requests if options.stream else None,
                deadlineMs=options.deadlineMs,
                metadata=readMetadata(options.metadata or []),
            )
        except ValueError as error:
            raise CommandError(str(error), MISUSED) from error
        count = 0
        try:
            async for result in call:
                count += 1
                size, event["bytes"] = call.bytesReceived - event["bytes"], call.bytesReceived
                if output.isJSON:
                    items.append({"data": result, "ms": elapsed(), "bytes": size})
                else:
                    output.line(json.dumps(result, ensure_ascii=False))
        except ServiceError as error:
            event.update(at="error", data=errorBody(error))
    code = printEnd(invocation, items, count, {**event, "ms": elapsed()})
    isUnreached = event["at"] == "error" and event["data"]["error"] == "UNAVAILABLE"
    return UNREACHED if isUnreached else code


async def _only(requests: AsyncIterator[Any]) -> Any:
    """
    Return the only request; C{None} without one.

    @raise CommandError: There are several.
    """
    found = [each async for each in requests]
    if len(found) > 1:
        raise CommandError("several requests are a stream: add --stream", MISUSED)
    return found[0] if found else None


async def _requests(texts: list[str], reactor: Any) -> AsyncIterator[Any]:
    """
    Yield the requests of the flags, reading standard input for a hyphen.

    @raise CommandError: A request is not JSON, or too long.
    """
    for text in texts:
        if text != "-":
            yield readRequest(text)
            continue
        decoder = NDJSONDecoder(_LINE_LIMIT)
        isOver = False
        while not isOver:
            piece = await _readInput(reactor)
            isOver = not piece
            try:
                lines = decoder.end() if isOver else decoder.feed(piece)
            except LineTooLong:
                raise CommandError(f"a request exceeds {_LINE_LIMIT} bytes", MISUSED) from None
            for line in lines:
                yield readRequest(line.decode("utf-8", "replace"))


def _readInput(reactor: Any) -> Deferred[bytes]:
    """
    Read from standard input.

    The thread may wait longer than the call takes, so the reactor must not wait for its end; it
    reads the file descriptor, because C{sys.stdin} has a lock that the exit of the process takes.

    @return: The next bytes, or C{b""} at the end.
    """
    got: Deferred[bytes] = Deferred()

    def run() -> None:
        try:
            piece = os.read(sys.stdin.fileno(), _READ_BYTES)
        except OSError:
            piece = b""
        reactor.callFromThread(lambda: None if got.called else got.callback(piece))

    Thread(target=run, daemon=True).start()
    return got
