"""What C{configureErrorHandling} takes."""

from attrs import field, frozen

from storagegate.core.optionvalues import readFunction
from storagegate.gateway.host import ErrorHook


@frozen(kw_only=True)
class ErrorOptions:
    """
    What clients see of errors.

    @ivar transformError: C{(error, protocol)} gives an error, or a mapping in the wire's own shape;
        it cannot wait for anything.
    """

    transformError: ErrorHook = field(converter=readFunction)
