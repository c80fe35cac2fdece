"""What becomes of a blob that was found damaged."""

from collections.abc import Callable, Sequence

from twisted.logger import Logger

from storagegate.storage.catalog.ledger import BlobRow, IBlobLedger


def verdict(size: int, crc: int | None, foundSize: int, foundCrc: int) -> str | None:
    """
    Compare a blob with its row.

    @param crc: L{None} where only the sizes are compared.
    @return: What is wrong, or L{None}.
    """
    if foundSize != size:
        return f"has {foundSize} bytes, not {size}"
    if crc is not None and foundCrc != crc:
        return "does not hold the bytes that were written"
    return None


class DamageReport:
    """
    Remembers damage, so that nobody is given the bytes again. Reactor thread.

    @param damaged: Told of the blobs, to open them no more.
    """

    _log = Logger()

    def __init__(self, catalog: IBlobLedger, damaged: Callable[[Sequence[str]], object]) -> None:
        self._catalog = catalog
        self._damaged = damaged

    async def add(self, row: BlobRow, problem: str) -> None:
        """
        Note that a blob is damaged, for good, and tell the operator.

        @raise StoreError: It could not be noted in the catalog.
        """
        # A blob that was deleted meanwhile is not damaged.
        if row.id in await self._catalog.referenced([row.id]):
            self._log.critical("blob {blob} {problem}", blob=row.id, problem=problem)
            self._damaged([row.id])
            await self._catalog.markDamaged(row.id)
