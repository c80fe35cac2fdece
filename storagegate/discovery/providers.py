"""Makes the provider that the options name, and imports no other."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from storagegate.core.meters import Meters
from storagegate.discovery.interfaces import IProvider
from storagegate.discovery.options import DiscoveryOptions, checkDiscovery


def makeProvider(
    options: DiscoveryOptions,
    reactor: Any,
    meters: Meters | None = None,
    chance: Callable[[], float] = random.random,
) -> IProvider:
    """
    Make a provider.

    @param chance: Gives numbers from 0 to 1, by which waits after failures differ.
    @raise OptionError: If an option does not fit the others.
    """
    from storagegate.discovery.watched import MakeWatch, Provider

    checkDiscovery(options)
    name = options.provider or "static"
    makeWatch: MakeWatch | None = None
    if name == "dns":
        from storagegate.discovery.dns import DNSWatch

        makeWatch = partial(DNSWatch, reactor, options.dns)
    elif name == "consul":
        from storagegate.discovery.consul import ConsulWatch

        makeWatch = partial(ConsulWatch, reactor, options.consul)
    elif name == "etcd":
        from storagegate.discovery.etcd import EtcdWatch

        makeWatch = partial(EtcdWatch, reactor, options.etcd)
    elif name == "kubernetes":
        from storagegate.discovery.kubernetes import KubernetesWatch

        makeWatch = partial(KubernetesWatch, reactor, options.kubernetes)
    return Provider(name, options.services, makeWatch, reactor, meters or Meters(), chance)
