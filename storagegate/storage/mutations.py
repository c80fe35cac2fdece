"""Changes of the catalog."""

from typing import Any

from twisted.internet.defer import Deferred


class UncancellableDeferred(Deferred[Any]):
    """
    The result of a mutation.

    C{cancel} does nothing: the mutation is still committed or refused, and the owner of its blobs
    must wait for the outcome.
    """

    def cancel(self) -> None:
        """Do nothing."""
