"""What C{configureServiceDiscovery} takes: where the instances of services are."""

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen
from attrs.converters import optional

from storagegate.core.optionvalues import (
    OptionError,
    changeOptions,
    groupField,
    readWord,
)
from storagegate.discovery.instances import AUTO
from storagegate.discovery.provideroptions import (
    ConsulOptions,
    DNSOptions,
    EtcdOptions,
    KubernetesOptions,
    RegisterOptions,
    ownCluster,
)
from storagegate.discovery.routing import RoutingOptions
from storagegate.discovery.services import DiscoveredService, readServices
from storagegate.discovery.tlsoptions import TLSOptions, checkPair

PROVIDERS = ("static", "dns", "consul", "etcd", "kubernetes")

SECURED = ("consul", "etcd", "kubernetes")
"""The providers with a table C{tls}."""

REGISTRIES = ("consul", "etcd")
"""The providers that take note of instances which tell of themselves."""


def _provider(value: Any) -> str:
    return readWord(value, PROVIDERS)


@frozen(kw_only=True)
class DiscoveryOptions:
    """
    Where the instances of services are that are not here.

    @ivar provider: Who knows the instances of services that name none here.
    @ivar services: The services that are elsewhere, by name.
    @ivar routing: Which calls of them belong together.
    @ivar dns: The options of a provider.
    @ivar consul: The same.
    @ivar etcd: The same.
    @ivar kubernetes: The same.
    @ivar register: How this daemon tells of itself; C{None} unless it was given: then it does not.
    """

    provider: str | None = field(default=None, converter=optional(_provider))
    services: Mapping[str, DiscoveredService] = field(factory=dict, converter=readServices)
    routing: RoutingOptions = groupField(RoutingOptions)
    dns: DNSOptions = groupField(DNSOptions)
    consul: ConsulOptions = groupField(ConsulOptions)
    etcd: EtcdOptions = groupField(EtcdOptions)
    kubernetes: KubernetesOptions = groupField(KubernetesOptions)
    register: RegisterOptions | None = groupField()


def readDiscovery(before: DiscoveryOptions, changes: Mapping[str, Any]) -> DiscoveryOptions:
    """
    Change some options.

    @raise OptionError: If there is no such option, or its value is none.
    """
    if before.register is None and isinstance(changes.get("register"), Mapping):
        before = evolve(before, register=RegisterOptions())
    return changeOptions(before, changes)


def checkDiscovery(options: DiscoveryOptions) -> None:
    """
    Check what can only be told when all has been said.

    @raise OptionError: If an option does not fit the others.
    """
    if options.provider in (None, "static"):
        for name, service in options.services.items():
            if service.instances is None:
                raise OptionError(
                    f'the option services.{name}.instances is "{AUTO}": that needs a provider, '
                    f"one of {', '.join(PROVIDERS[1:])}"
                )
    if options.provider == "kubernetes" and not (options.kubernetes.address or ownCluster()):
        raise OptionError("the option kubernetes.address is missing: this is no pod of a cluster")
    if options.register is not None and options.provider not in REGISTRIES:
        raise OptionError(f"the option register needs a provider, {' or '.join(REGISTRIES)}")
    if (options.etcd.username is None) != (options.etcd.passwordFile is None):
        raise OptionError("the options etcd.username and etcd.passwordFile are given together")
    for group in SECURED:
        checkPair(getattr(options, group).tls, f"{group}.tls")
    for name, service in options.services.items():
        checkPair(service.tls, f"services.{name}.tls")


def tlsTables(options: DiscoveryOptions) -> dict[str, TLSOptions]:
    """Give the options of TLS that are used, by the name of their table."""
    tables: dict[str, TLSOptions] = {
        f"services.{name}.tls": service.tls
        for name, service in options.services.items()
        if service.tls is not None
    }
    if options.provider in SECURED:
        tables[f"{options.provider}.tls"] = getattr(options, options.provider).tls
    return tables
