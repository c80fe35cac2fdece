"""The errors of the domain."""

from storagegate.objects import errors
from storagegate.objects.errors import DomainError


def errorKinds() -> list[type[DomainError]]:
    """Return the classes of all errors of the domain."""
    found = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, DomainError) and each is not DomainError
    ]
    assert found, "there are errors"
    return found
