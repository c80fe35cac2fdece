"""The description of the API as OpenAPI 3.1, from its routes."""

from typing import Any

from storagegate.console.call import ConsoleCall
from storagegate.core.openapi import ERROR
from storagegate.http.middleware.openapi import DocumentOptions, describeRoutes
from storagegate.http.router import Router
from storagegate.version import __version__

_OPTIONS = DocumentOptions(
    title="storagegate console",
    version=__version__,
    servers=["."],
    securitySchemes={
        "cookie": {"type": "apiKey", "in": "cookie", "name": "storagegate-console"},
        "token": {"type": "apiKey", "in": "header", "name": "X-Console-Token"},
    },
    errors={"default": "An error"},
    error={**ERROR, "required": ["error", "message"]},
)


async def showOpenAPI(call: ConsoleCall) -> Any:
    """Describe this API."""
    services = call.services
    return services.keep("openapi", lambda: describe(services.kept["console"].api.router))


def describe(router: Router) -> dict[str, Any]:
    """
    Build the OpenAPI document.

    @param router: The router of L{ConsoleAPI<storagegate.console.api.ConsoleAPI>}.
    """
    return describeRoutes(router, _OPTIONS)
