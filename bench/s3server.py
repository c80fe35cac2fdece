"""An S3 server as processes, and how it is asked."""

from pathlib import Path

from bench.processes import Answer, Server
from bench.s3recipes import S3Recipe
from bench.signing import Request, anonymous, fieldsOf, signer, targetOf


class S3Server(Server):
    """
    An S3 server that runs while the context lasts.

    @ivar buckets: How many objects each bucket and prefix was filled with.
    """

    recipe: S3Recipe

    def __init__(self, recipe: S3Recipe, parent: Path) -> None:
        super().__init__(recipe, parent)
        self.authorizer = signer(recipe.credentials) if recipe.credentials else anonymous
        self.buckets: dict[str, int] = dict(recipe.prefilled)

    def send(self, request: Request, body: bytes | None = None) -> Answer:
        """Send one request, signed, outside of any measurement."""
        fields = fieldsOf(request, self.host, self.authorizer)
        return self.exchange(request.method, targetOf(request), body, fields)
