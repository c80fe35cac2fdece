"""
The dependencies of a server: an application, a gRPC server, or the methods of a gateway.

A module of its own, because servers without dependencies do not load the rest.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storagegate.core.dependencies import DependencyContainer


class DependencyOwner:
    """A server whose handlers may have dependencies."""

    _dependencies: "DependencyContainer | None" = None

    def _hasOpenPorts(self) -> bool:
        """Return whether it serves, and so keeps the values with the scope of an application."""
        raise NotImplementedError

    @property
    def dependencies(self) -> "DependencyContainer":
        """
        Return the dependencies of its handlers.

        Assign those of another application, gateway or gRPC server to share the values with the
        scope of an application; they end when the last one that serves has closed.
        """
        if self._dependencies is None:
            # Imported with the first dependency.
            from storagegate.core.dependencies import DependencyContainer

            self.dependencies = DependencyContainer()
            return self.dependencies
        return self._dependencies

    @dependencies.setter
    def dependencies(self, dependencies: "DependencyContainer") -> None:
        self._dependencies = dependencies
        dependencies.join(self._hasOpenPorts)

    @property
    def overrides(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        """Return the functions that are called in place of dependencies, for tests."""
        return self.dependencies.overrides
