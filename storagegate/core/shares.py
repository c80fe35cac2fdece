"""
The share that one address has of what a listener can serve: connections, and calls or requests.

Without a share one client could take all of it. Each transport compares the counts of
L{AddressShare} with L{shareOf} its limit; a share is forgotten with the last connection or call
that refers to it.
"""

from weakref import WeakValueDictionary

from attrs import define

from storagegate.core.context import rateLimitKey


def shareOf(limit: int, given: int | None = None) -> int:
    """
    Return how many one address may have: three quarters, because a proxy may be all clients that
    there are, and a single client leaves some to the others.

    @param limit: How many a listener has.
    @param given: The option in place of that; C{None} if it is not set.
    """
    return limit - limit // 4 if given is None else given


@define(eq=False)
class AddressShare:
    """
    What one address has of a listener. Each transport counts it up and down itself: a call costs
    two additions.

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
        Return the share of an address; that of its network for IPv6.

        @param address: The client's. Empty for a client of a UNIX socket: each has its own share.
        """
        if not address:
            return AddressShare()
        key = rateLimitKey(address)
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = AddressShare()
        return share
