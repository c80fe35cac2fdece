"""The options of discovery, for checks that look at what they name."""

from collections.abc import Mapping
from typing import Any


def discoveryOptions(tables: Mapping[str, Any]) -> Any:
    """
    Read the C{DiscoveryOptions} of a gateway.

    @param tables: Those of the gateway.
    @return: C{None} where there are none, or where they are wrong: that is found elsewhere.
    """
    if "discovery" not in tables:
        return None
    from storagegate.core.optionvalues import OptionError
    from storagegate.discovery.options import DiscoveryOptions, readDiscovery

    try:
        return readDiscovery(DiscoveryOptions(), tables["discovery"])
    except (OptionError, TypeError):
        return None
