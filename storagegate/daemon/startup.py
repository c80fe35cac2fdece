"""What the daemon tells its operator when it starts: plain functions from values to text."""

from collections.abc import Mapping
from ipaddress import ip_address

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress
from twisted.logger import Logger

from storagegate.core.httpurls import schemeOf
from storagegate.daemon.config import Configuration
from storagegate.daemon.rootcredentials import RootCredentials

# Addresses that mean "every interface" cannot be connected to everywhere.
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}

_ENCRYPTED = ("ssl:", "tls:")


def formatAddress(address: IAddress) -> str:
    """Write an address as C{127.0.0.1:9000}, C{[::1]:9000} or C{unix:/path}."""
    if isinstance(address, IPv4Address):
        return f"{address.host}:{address.port}"
    if isinstance(address, IPv6Address):
        return f"[{address.host}]:{address.port}"
    if isinstance(address, UNIXAddress) and address.name is not None:
        return f"unix:{address.name.decode('utf-8', 'backslashreplace')}"
    return str(address)


def clientURL(description: str, address: IAddress) -> str | None:
    """Write the URL that reaches a listener from this machine; L{None} where there is none."""
    if not isinstance(address, IPv4Address | IPv6Address):
        return None
    host = _WILDCARDS.get(address.host, address.host)
    if ":" in host:
        host = f"[{host}]"
    scheme = schemeOf(description.startswith(_ENCRYPTED))
    return f"{scheme}://{host}:{address.port}"


def isExposed(description: str, address: IAddress) -> bool:
    """Tell whether other machines reach a listener, and what they send it is not encrypted."""
    if not isinstance(address, IPv4Address | IPv6Address) or description.startswith(_ENCRYPTED):
        return False
    return not ip_address(address.host.partition("%")[0]).is_loopback


def servingText(addresses: Mapping[str, IAddress]) -> str:
    """Write what is served where, in one line for the service manager."""
    places = (f"{name} {formatAddress(address)}" for name, address in addresses.items())
    return f"serving {', '.join(places)}" if addresses else "serving nothing"


def firstKeyText(pair: RootCredentials, region: str, url: str | None, path: str) -> str:
    """Write the generated root key pair with the commands that give it to aws-cli."""
    lines = [
        f"generated the root key pair, shown this once and kept in {path}:",
        f"aws configure set aws_access_key_id {pair.accessKey}",
        f"aws configure set aws_secret_access_key {pair.secretKey}",
        f"aws configure set region {region}",
    ]
    if url is not None:
        lines.append(f"aws configure set endpoint_url {url}")
    return "\n".join(lines)


def warnOfPlainHTTP(
    log: Logger, configuration: Configuration, addresses: Mapping[str, IAddress]
) -> None:
    """Warn where secrets may pass other machines in clear."""
    description = configuration.listeners.s3
    if description is not None and isExposed(description, addresses["s3"]):
        log.warn(
            "the s3 listener is reachable from other machines without TLS: requests with "
            "x-storage-secret-key carry the secret in clear; listen on ssl: or tls: instead"
        )


def logAddresses(log: Logger, addresses: Mapping[str, IAddress]) -> None:
    """Write a line for each listener."""
    for name, address in addresses.items():
        text = formatAddress(address)
        log.info("listening name={name} address={address}", name=name, address=text)
