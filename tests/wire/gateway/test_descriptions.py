"""The description of the wires of messages, held against the schema that AsyncAPI publishes."""

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SkipTest, TestCase

from storagegate.core.definitions import readService
from storagegate.core.invoker import Invoker
from storagegate.gateway.asyncapi import describeMessages
from storagegate.gateway.options import GatewayOptions
from tests.gateway.describing import ORDERS
from tests.support.gateway import TokenAuthenticator
from tests.support.nodepackages import nodeModules
from tests.support.selection import long

try:
    from jsonschema import Draft7Validator
except ImportError:
    Draft7Validator = None

SPECS = "@asyncapi/specs@6.11.1"


def readSpecification() -> Any:
    """Read the schema of AsyncAPI 3. Blocks."""
    folder = nodeModules(SPECS) / "@asyncapi" / "specs" / "schemas"
    return json.loads((folder / "3.0.0-without-$id.json").read_text())


class AsyncAPITests(TestCase):
    """The schema of AsyncAPI 3.0."""

    timeout = 150

    @long("takes seconds")
    def test_valid(self) -> Deferred[None]:
        """The description is valid."""
        if Draft7Validator is None:
            raise SkipTest("jsonschema is not installed")
        invoker = Invoker(TokenAuthenticator())
        invoker.add(readService(ORDERS))
        methods = [invoker.find("Orders", name) for name in ORDERS["methods"]]  # type: ignore[attr-defined]
        document = json.loads(json.dumps(describeMessages(methods, GatewayOptions())))

        def check(specification: Any) -> None:
            validator = Draft7Validator(specification)
            self.assertEqual([error.message for error in validator.iter_errors(document)], [])
            document["operations"]["tcp.Orders.get"]["action"] = "shout"
            self.assertFalse(validator.is_valid(document))

        return deferToThread(readSpecification).addCallback(check)
