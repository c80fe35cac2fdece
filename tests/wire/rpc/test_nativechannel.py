"""
A client on the native engine does what one on grpc core does: their cases are the same.

Cases that differ are here in full, with what the specification wants.
"""

from tests.support.nativeengine import WithNativeClients, casesWith
from tests.wire.rpc import (
    test_client,
    test_clientends,
    test_clientlearning,
    test_clientpressure,
    test_clienttls,
    test_clientwithserver,
    test_generated,
    test_lyingserver,
    test_typed,
)

_MODULES = (
    test_client,
    test_clientends,
    test_clientlearning,
    test_clientpressure,
    test_clienttls,
    test_clientwithserver,
    test_generated,
    test_lyingserver,
    test_typed,
)


class NativeChannelManyTests(WithNativeClients, test_clientends.ManyTests):
    """Very many calls."""

    threads = 0


class NativeChannelErrorTests(WithNativeClients, test_client.ErrorTests):
    """Errors."""

    surplus = "INTERNAL"


globals().update(casesWith(WithNativeClients, "NativeChannel", _MODULES, __name__, globals()))
