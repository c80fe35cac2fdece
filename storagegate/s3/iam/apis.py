"""The two APIs in the query protocol: IAM and STS."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from attrs import frozen

from storagegate.objects.identities import sts, table
from storagegate.objects.identities.operations import IdentityOperation


@frozen
class QueryAPI:
    """
    An API.

    @ivar service: The service that signatures name.
    @ivar version: The version of the API.
    @ivar namespace: The namespace of its documents.
    @ivar operations: The operations by name.
    @ivar perform: Performs an operation for a caller.
    @ivar hasUnsigned: Whether some operations need no signature.
    """

    service: str
    version: str
    namespace: str
    operations: Mapping[str, type[IdentityOperation[Any]]]
    perform: Callable[..., Coroutine[Any, Any, Any]]
    hasUnsigned: bool = False


APIS: Mapping[str, QueryAPI] = {
    "iam": QueryAPI(
        "iam",
        "2010-05-08",
        "https://iam.amazonaws.com/doc/2010-05-08/",
        table.OPERATIONS,
        table.perform,
    ),
    "sts": QueryAPI(
        "sts",
        "2011-06-15",
        "https://sts.amazonaws.com/doc/2011-06-15/",
        sts.OPERATIONS,
        sts.perform,
        hasUnsigned=True,
    ),
}
"""The APIs by service."""
