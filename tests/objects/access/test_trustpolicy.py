"""Trust policies of roles."""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.context import AccessContext, PlainCaller
from storagegate.objects.access.trustpolicy import Trust, compileTrustPolicy
from storagegate.objects.principals import Identity

ACTION = "sts:AssumeRoleWithWebIdentity"
ISSUER = "login.example.com"
ALLOW = {"Effect": "Allow", "Principal": {"Federated": ISSUER}, "Action": ACTION}


class FederatedTests(SynchronousTestCase):
    """Decisions on the tokens of issuers."""

    def decide(self, *statements: dict[str, Any]) -> Trust:
        """Decide on a token of the issuer."""
        identity = Identity("", "ada")
        context = AccessContext(identity, PlainCaller(identity, ""), "", "", "ada", "")
        policy = compileTrustPolicy(json.dumps({"Statement": list(statements)}), "ada")
        return policy.evaluateFederated(ACTION, context, frozenset({ISSUER}))

    def test_named(self) -> None:
        """A statement must name the issuer, and a denial wins."""
        self.assertIs(self.decide(ALLOW), Trust.CALLER)
        self.assertIs(self.decide({**ALLOW, "Principal": {"Federated": "other"}}), Trust.NONE)
        self.assertIs(self.decide(ALLOW, {**ALLOW, "Effect": "Deny"}), Trust.DENIED)

    def test_everyone(self) -> None:
        """A denial for everyone concerns issuers too, but an allowance for everyone does not."""
        for principal in ("*", {"AWS": "*"}, {"AWS": ["*"]}):
            everyone = {"Effect": "Deny", "Principal": principal, "Action": "sts:*"}
            self.assertIs(self.decide(ALLOW, everyone), Trust.DENIED)
            self.assertIs(self.decide({**everyone, "Effect": "Allow"}), Trust.NONE)
            other = {**everyone, "Action": "sts:AssumeRole"}
            self.assertIs(self.decide(ALLOW, other), Trust.CALLER)
