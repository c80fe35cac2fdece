"""The catalog without a reactor: for the command line, beside a running daemon or without one."""

from sqlite3 import Connection
from types import TracebackType

from storagegate.storage.catalog import buckets
from storagegate.storage.catalog.connections import Durability, Purpose, connect, prepare
from storagegate.storage.catalog.transactions import Apply, Mutation, oneByOne, runAlone
from storagegate.storage.errors import StoreBusy, StoreFull
from storagegate.storage.records import AccessKey
from storagegate.storage.sqlite import Fault, classify

_ADD_KEY = oneByOne(buckets.addAccessKey)
_REMOVE_KEY = oneByOne(buckets.removeAccessKey)


class CatalogAdmin:
    """
    Issues and revokes access keys. All methods block. A context manager that closes.

    @param connection: Is closed by L{close}.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> "CatalogAdmin":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def accessKeys(self) -> list[AccessKey]:
        """Read all issued keys."""
        return buckets.readAccessKeys(self._connection)

    def addAccessKey(self, key: AccessKey) -> None:
        """
        Issue a key.

        @raise KeyExists: The access key is taken.
        """
        self._change(_ADD_KEY, key)

    def removeAccessKey(self, accessKey: str) -> bool:
        """Revoke a key; say whether it was there."""
        return self._change(_REMOVE_KEY, accessKey) is True

    def _change(self, apply: Apply, argument: object) -> object:
        try:
            outcome, _ = runAlone(self._connection, Mutation(apply, argument))
        except Exception as error:
            fault = classify(error)
            if fault is Fault.BUSY:
                raise StoreBusy from error
            if fault is Fault.FULL:
                raise StoreFull from error
            raise
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def openForTools(path: str) -> CatalogAdmin:
    """
    Open a catalog, making and migrating it as the daemon would.

    @param path: The C{catalog.sqlite} of a store.
    @raise CatalogUnusable: It cannot be opened; the text says why in one line.
    """
    prepare(path, Durability.FULL)
    return CatalogAdmin(connect(path, Durability.FULL, Purpose.WRITER))
