"""
The share of one address in the capacity of a listener: connections, and calls or requests.

Without a share, one client could take all capacity. Each transport compares the counts of
L{AddressShare} with L{shareOf} its limit. A share is freed with the last connection or call that
references it.
"""

from weakref import WeakValueDictionary

from attrs import define

from storagegate.core.context import rateLimitKey


def shareOf(limit: int, given: int | None = None) -> int:
    """
    Return the limit of one address: by default three quarters. A proxy may stand for all clients,
    and a single client leaves some capacity to others.

    @param limit: The limit of the listener.
    @param given: The configured limit of one address; C{None} for the default.
    """
    return limit - limit // 4 if given is None else given


@define(eq=False)
class AddressShare:
    """
    The use of a listener by one address. Each transport updates the counts itself: a call costs two
    additions.

    @ivar connections: Open connections.
    @ivar calls: Calls or requests in flight.
    """

    connections: int = 0
    calls: int = 0


class AddressShares:
    """The shares of the addresses that use a listener."""

    def __init__(self) -> None:
        self._shares: WeakValueDictionary[str, AddressShare] = WeakValueDictionary()

    def of(self, address: str) -> AddressShare:
        """
        Return the share of an address; IPv6 addresses of one network have one share.

        @param address: The address of the client; empty for a client of a UNIX socket, each of
            which has its own share.
        """
        if not address:
            return AddressShare()
        key = rateLimitKey(address)
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = AddressShare()
        return share
