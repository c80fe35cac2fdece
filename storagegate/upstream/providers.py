"""Makes the provider that the options name, and imports no other."""

import random
from functools import partial
from typing import Any

from storagegate.core.backoff import Uniform
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.upstream.options import DiscoveryOptions, checkDiscovery
from storagegate.upstream.provider import IProvider


def makeProvider(
    options: DiscoveryOptions,
    reactor: Any,
    meters: MetricsRegistry | None = None,
    uniform: Uniform = random.uniform,
) -> IProvider:
    """
    Make a provider.

    @param uniform: Makes the waits after failures differ.
    @raise OptionError: If an option does not fit the others.
    """
    from storagegate.upstream.provider import InstanceProvider, MakeWatch

    checkDiscovery(options)
    name = options.provider or "static"
    makeWatch: MakeWatch | None = None
    if name == "dns":
        from storagegate.upstream.dns import DNSWatch

        makeWatch = partial(DNSWatch, reactor, options.dns)
    elif name == "consul":
        from storagegate.upstream.consul import ConsulWatch

        makeWatch = partial(ConsulWatch, reactor, options.consul)
    elif name == "etcd":
        from storagegate.upstream.etcd import EtcdWatch

        makeWatch = partial(EtcdWatch, reactor, options.etcd)
    elif name == "kubernetes":
        from storagegate.upstream.kubernetes import KubernetesWatch

        makeWatch = partial(KubernetesWatch, reactor, options.kubernetes)
    return InstanceProvider(
        name, options.services, makeWatch, reactor, meters or MetricsRegistry(), uniform
    )
