"""What tests of responses share."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.testing import Client, TestResponse


class ResponseCase(SynchronousTestCase):
    """An application whose answer is given by a function."""

    def setUp(self) -> None:
        """Make it."""
        self.app = server.http()
        self.give: Any = None
        self.app.all("/", lambda req, res: self.give(res))
        self.client = Client(self.app)

    def answer(self, give: Any, method: str = "GET", **options: Any) -> TestResponse:
        """Give the response that a function of the response object makes."""
        self.give = give
        return self.client.request(method, "/", **options)

    def assertFields(self, response: TestResponse, **fields: str | None) -> None:
        """Check fields of a response; C{None} is for one that must not be there."""
        for name, value in fields.items():
            self.assertEqual(response.headers.get(name.replace("_", "-")), value, name)
