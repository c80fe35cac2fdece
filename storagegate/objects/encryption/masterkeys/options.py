"""The table C{[vault]} of the configuration."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from attrs import AttrsInstance, field, frozen
from attrs.converters import optional

from storagegate.core.addresses import HTTP, readAddress
from storagegate.core.options import (
    OptionError,
    makeOptions,
    optionField,
    parseDecimal,
    readFileName,
    readNumber,
)
from storagegate.objects.encryption.masterkeys.keyfile import KEY_NAME

_ADDRESS = re.compile(
    r"https?://(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?/?"
)
_MOUNT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*){0,9}")

K = TypeVar("K", bound=AttrsInstance)

KUBERNETES_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
"""The token of a pod's service account."""


def _readAddress(value: Any) -> str:
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise ValueError('is a URL such as "https://vault.example.com:8200"')
    parts = urlsplit(value)
    if parts.scheme == HTTP and not _isLoopback(parts.hostname or ""):
        raise ValueError("is an https URL; http is for this machine alone")
    return value.rstrip("/")


def _isLoopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return readAddress(host).is_loopback
    except ValueError:
        return False


def _readMount(value: Any) -> str:
    if not isinstance(value, str) or not _MOUNT.fullmatch(value):
        raise ValueError('is the path of a mount such as "transit"')
    return value


def _readKey(value: Any) -> str:
    if not isinstance(value, str) or not KEY_NAME.fullmatch(value):
        raise ValueError("is the name of a key: 1 to 128 letters, digits, _ . -")
    return value


def _readText(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or not value.isascii():
        raise ValueError("is text without control characters")
    return value


def _readSeconds(value: Any) -> int:
    try:
        return readNumber(parseDecimal(value, 60) if isinstance(value, str) else value, 1, 60)
    except ValueError:
        raise ValueError("is a number of seconds from 1 to 60") from None


def _readTable(value: Any, kind: type[K], name: str) -> K:
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("is a table")
    return makeOptions(kind, value, f"vault.{name}.")


@frozen(kw_only=True)
class AppRoleLoginOptions:
    """
    A login with AppRole.

    @ivar roleId: The id of the role.
    @ivar secretIdFile: The file of the secret id; L{None} if C{STORAGEGATE_VAULT_SECRET_ID} has it.
    @ivar secretId: The secret id itself.
    @ivar mount: The path at which the login method is mounted.
    """

    roleId: str = field(converter=_readText)
    secretIdFile: str | None = optionField(None, readFileName)
    secretId: str | None = field(default=None, converter=optional(_readText), repr=False)
    mount: str = field(default="approle", converter=_readMount)


@frozen(kw_only=True)
class KubernetesLoginOptions:
    """
    A login with the token of a Kubernetes service account.

    @ivar role: The role at Vault.
    @ivar tokenFile: The file of the service account's token, which Kubernetes renews.
    @ivar mount: The path at which the login method is mounted.
    """

    role: str = field(converter=_readText)
    tokenFile: str = optionField(KUBERNETES_TOKEN, readFileName)
    mount: str = field(default="kubernetes", converter=_readMount)


def _readAppRole(value: Any) -> AppRoleLoginOptions:
    return _readTable(value, AppRoleLoginOptions, "appRole")


def _readKubernetes(value: Any) -> KubernetesLoginOptions:
    return _readTable(value, KubernetesLoginOptions, "kubernetes")


@frozen(kw_only=True)
class VaultOptions:
    """
    The transit engine of Vault or OpenBao as the provider of master keys.

    @ivar address: The URL of the server, C{https} except on this machine.
    @ivar mount: The path at which the transit engine is mounted.
    @ivar defaultKey: The name of the key for requests that name none.
    @ivar namespace: The namespace; L{None} for none.
    @ivar tokenFile: The file of a token, such as the sink of an agent, which renews it.
    @ivar token: A token; set it by C{STORAGEGATE_VAULT_TOKEN}.
    @ivar appRole: A login with AppRole.
    @ivar kubernetes: A login with the token of a service account.
    @ivar caFile: Certificates of the authorities of the server, PEM; default: the system's.
    @ivar timeoutSeconds: The time for a request, in seconds.
    """

    address: str = field(converter=_readAddress)
    mount: str = field(default="transit", converter=_readMount)
    defaultKey: str = field(default="storagegate", converter=_readKey)
    namespace: str | None = field(default=None, converter=optional(_readText))
    tokenFile: str | None = optionField(None, readFileName)
    token: str | None = field(default=None, converter=optional(_readText), repr=False)
    appRole: AppRoleLoginOptions | None = field(default=None, converter=optional(_readAppRole))
    kubernetes: KubernetesLoginOptions | None = field(
        default=None, converter=optional(_readKubernetes)
    )
    caFile: str | None = optionField(None, readFileName)
    timeoutSeconds: int = field(default=5, converter=_readSeconds)

    def secrets(self) -> Iterator[str]:
        """Yield the credentials in these options."""
        if self.token is not None:
            yield self.token
        if self.appRole is not None and self.appRole.secretId is not None:
            yield self.appRole.secretId


def readVault(table: Mapping[str, Any]) -> VaultOptions:
    """
    Read the table.

    @raise OptionError: An option is invalid, or not exactly one way to sign in is given.
    """
    options: VaultOptions = makeOptions(VaultOptions, table, "vault.")
    hasToken = options.token is not None or options.tokenFile is not None
    ways = (hasToken, options.appRole is not None, options.kubernetes is not None)
    if sum(ways) != 1:
        raise OptionError(
            "the option vault needs one of tokenFile (or STORAGEGATE_VAULT_TOKEN), appRole and"
            " kubernetes"
        )
    return options
