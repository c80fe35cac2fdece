"""Authentication with everything that the gateway has, tokens of an OAuth issuer included."""

from collections.abc import Mapping
from typing import Any

from storagegate.core.authentication import Authentication, readAuthentication


def readProviders(config: Mapping[str, Any]) -> Authentication:
    """
    Read the whole configuration of authentication: C{providers} and C{rules}.

    @raise OptionError: If there is no such option, or its value is none or not safe.
    """
    return readAuthentication(config)
