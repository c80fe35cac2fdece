"""Whether the other machines answer that the configuration speaks of."""

import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from storagegate.doctor.findings import Check, Finding

_check = Check("network")

_SECONDS = 1.0

_PORTS = {"http": 80, "https": 443}


def checkNeighbours(tables: Mapping[str, Any]) -> Iterator[Finding]:
    """
    Connect to everything that discovery and tracing need.

    @param tables: Those of the gateway. What is not right in them is found elsewhere.
    """
    for what, host, port in (*_ofDiscovery(tables), *_ofTracing(tables)):
        yield checkPlace(what, host, port)


def checkPlace(what: str, host: str, port: int) -> Finding:
    """Resolve a name and open a connection to it."""
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except socket.gaierror as error:
        return _check.warning(f"{what}: there is no host {host}: {error.strerror}")
    except OSError as error:
        reason = error.strerror or f"no answer in {_SECONDS:.0f} s"
        return _check.warning(f"{what} at {host}:{port} does not answer: {reason}")
    return _check.ok(f"{what} at {host}:{port} answers")


def _ofDiscovery(tables: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    if "discovery" not in tables:
        return
    from storagegate.core.optionvalues import OptionError
    from storagegate.discovery.options import DiscoveryOptions, readDiscovery

    try:
        options = readDiscovery(DiscoveryOptions(), tables["discovery"])
    except (OptionError, TypeError):
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
