"""Whether the other machines answer that the configuration speaks of."""

import os
import socket
from collections.abc import Iterator, Mapping
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from storagegate.doctor.discovering import discoveryOptions
from storagegate.doctor.findings import Check, Finding

_check = Check("network")

_SECONDS = 1.0

# Instances may be many, and threads are not for nothing.
_TOGETHER = 32

_PORTS = {"http": 80, "https": 443}


def checkNeighbours(tables: Mapping[str, Any]) -> Iterator[Finding]:
    """
    Connect to everything that discovery and tracing need.

    @param tables: Those of the gateway. What is not right in them is found elsewhere.
    """
    places = [*_ofDiscovery(tables), *_ofTracing(tables)]
    for start in range(0, len(places), _TOGETHER):
        attempts = [_Attempt(*place) for place in places[start : start + _TOGETHER]]
        for attempt in attempts:
            yield attempt.finding()


class _Attempt:
    """A connection that is tried in a thread, for nothing limits how long a name is looked up."""

    def __init__(self, what: str, host: str, port: int) -> None:
        self._what = what
        self._place = (host, port)
        self._finding = _check.warning(f"{what}: the name {host} is not found in time")
        # Nobody waits for it at the end of the process.
        self._thread = Thread(target=self._try, daemon=True)
        self._thread.start()

    def finding(self) -> Finding:
        """Wait for its end, but not for long."""
        self._thread.join(2 * _SECONDS)
        return self._finding

    def _try(self) -> None:
        what, (host, port) = self._what, self._place
        try:
            socket.create_connection(self._place, _SECONDS).close()
        except socket.gaierror as error:
            reason = error.strerror
            self._finding = _check.warning(f"{what}: there is no host {host}: {reason}")
        except OSError as error:
            reason = error.strerror or f"no answer in {_SECONDS:.0f} s"
            self._finding = _check.warning(f"{what} at {host}:{port} does not answer: {reason}")
        else:
            self._finding = _check.ok(f"{what} at {host}:{port} answers")


def _ofDiscovery(tables: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    options = discoveryOptions(tables)
    if options is None:
        return
    if options.provider == "consul":
        yield "Consul", *_split(options.consul.address)
    elif options.provider == "etcd":
        for address in options.etcd.addresses:
            yield "etcd", *_split(address)
    elif options.provider == "kubernetes":
        host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        if options.kubernetes.address is not None:
            yield "Kubernetes", *_split(options.kubernetes.address)
        elif host:
            yield "Kubernetes", host, int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
    for name, service in options.services.items():
        for instance in service.instances or ():
            yield f"an instance of {name}", instance.host, instance.port


def _ofTracing(tables: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    monitoring = tables.get("monitoring")
    tracing = monitoring.get("tracing") if isinstance(monitoring, Mapping) else None
    if not isinstance(tracing, Mapping) or not tracing.get("enabled"):
        return
    from storagegate.core.optionvalues import OptionError, makeOptions
    from storagegate.telemetry.options import TracingOptions, readCollector

    given = {name: tracing[name] for name in ("provider", "endpoint") if name in tracing}
    try:
        collector = readCollector(makeOptions(TracingOptions, given))
    except OptionError:
        return
    yield "the collector of traces", *_split(collector.endpoint)


def _split(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 443)
