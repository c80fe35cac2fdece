"""The interface of providers of master keys."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from zope.interface import Attribute, Interface


class MasterKey(Struct, frozen=True):
    """
    A master key, without its secret.

    @ivar versions: The number of versions; the last one wraps.
    @ivar isDefault: Whether it wraps the keys of requests that name no master key.
    """

    name: str
    versions: int
    createdMs: int
    disabled: bool = False
    isDefault: bool = False


class IMasterKeys(Interface):
    """
    A provider of master keys, which never leave it. Methods: reactor thread.

    All methods raise L{storagegate.objects.errors.MasterKeysUnavailable} if the provider cannot be
    reached or has no keys.
    """

    problem: str | None = Attribute(
        "Why keys cannot be used now, in one line; L{None} if they can."
    )
    defaultKey: str = Attribute("The name of the default key.")

    onChange: Callable[[], object] | None = Attribute(
        "Called when a key may have been disabled or enabled, also by another process. Open bucket "
        "keys are then unwrapped again before their next use."
    )

    async def wrap(name: str, plain: bytes, binding: bytes) -> str:
        """
        Wrap a key under the last version of a master key.

        @param name: The name of the master key.
        @param plain: 32 bytes.
        @param binding: Authenticated; L{unwrap} needs the same bytes.
        @return: ASCII text.
        @raise MasterKeyNotFound: There is no such key.
        @raise MasterKeyDisabled: It is disabled.
        """

    async def unwrap(name: str, wrapped: str, binding: bytes) -> bytes:
        """
        Unwrap a key with the version of the master key that wrapped it. A disabled key is refused.

        @raise MasterKeyNotFound: There is no such key or version.
        @raise MasterKeyDisabled: It is disabled.
        @raise WrongMasterKey: The text was wrapped under another key or binding, or is damaged.
        """

    def isCurrent(name: str, wrapped: str) -> bool:
        """Return whether the last known version of the master key wrapped a text."""

    async def newKey(name: str) -> None:
        """
        Create a master key.

        @raise MasterKeyExists: It exists.
        @raise InvalidArgument: The name is invalid.
        """

    async def rotate(name: str) -> None:
        """Add a version, which wraps from now on; earlier versions still unwrap."""

    async def disable(name: str, disabled: bool) -> None:
        """Disable a master key, or enable it again."""

    async def keys() -> Sequence[MasterKey]:
        """List the master keys by name."""

    async def check() -> None:
        """Find out whether the keys can be used; the result is in L{problem}."""

    async def close() -> None:
        """Stop renewals and close connections."""
