"""
The compiled statements of policies.

A policy is compiled to lists of rules, one for each action: a request evaluates only the statements
on its action, first the resource, then the principal, then the conditions.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from storagegate.objects.access.conditions import Test, resolved
from storagegate.objects.access.context import AccessContext
from storagegate.objects.access.patterns import ANY, Tokens, hasVariables, matcher
from storagegate.objects.principals import Identity

ResourceTest = Callable[[str, AccessContext], bool]
"""Whether a resource matches the patterns of a statement."""

PrincipalTest = Callable[[Identity], bool]
"""Whether a statement names an identity."""

Row = tuple[tuple[str, ...] | None, ResourceTest | None, PrincipalTest | None, tuple[Test, ...]]
"""See L{Rules.rows}."""


class Rules(Struct, frozen=True):
    """
    The statements with one effect on one action.

    Statements whose prefixes do not match are skipped without a call, and all at once if no prefix
    matches: 20 such statements take 2 microseconds, instead of 7 with a call for each.

    @ivar rows: For each statement: prefixes of resources; or L{None} and a test of the resource; or
        twice L{None} for every resource. Then a test of the identity, or L{None} for all
        identities; then the conditions.
    @ivar beginnings: The prefixes of all statements that have some.
    @ivar others: The rows without prefixes.
    """

    rows: tuple[Row, ...]
    beginnings: tuple[str, ...]
    others: tuple[Row, ...]

    def hold(self, context: AccessContext, resource: str) -> bool:
        """
        Return whether any of the statements applies to a request.

        @param resource: The resource in the form that the patterns have: for the policy of a
            bucket, the key.
        """
        identity = context.identity
        for starts, test, principals, conditions in (
            self.rows if resource.startswith(self.beginnings) else self.others
        ):
            if starts is not None:
                if not resource.startswith(starts):
                    continue
            elif test is not None and not test(resource, context):
                continue
            if principals is not None and not principals(identity):
                continue
            for condition in conditions:
                if not condition(context):
                    break
            else:
                return True
        return False

    def readConditions(self, context: AccessContext, resource: str) -> None:
        """
        Read the condition keys of all statements on a resource, those after an untrue condition
        too. See L{hold} for the parameters.
        """
        for starts, test, _, conditions in self.rows:
            isOn = (
                resource.startswith(starts)
                if starts is not None
                else (test is None or test(resource, context))
            )
            for condition in conditions if isOn else ():
                condition(context)

    def couldHold(self, identity: Identity) -> bool:
        """Return whether any of the statements names an identity."""
        return any(principals is None or principals(identity) for _, _, principals, _ in self.rows)


NO_RULES = Rules((), (), ())
"""No statements."""


def makeRules(rows: Iterable[Row]) -> Rules:
    """Make the rules of some statements."""
    found = tuple(rows)
    if not found:
        return NO_RULES
    beginnings = {each for starts, *_ in found for each in starts or ()}
    return Rules(found, tuple(beginnings), tuple(row for row in found if row[0] is None))


def prefixesOf(patterns: Iterable[Tokens], isNot: bool) -> tuple[str, ...] | None:
    """
    Return the prefixes that all patterns consist of; L{None} if a pattern has another form.

    @param isNot: Whether the statement concerns all other resources instead.
    """
    found = []
    for tokens in patterns:
        if len(tokens) != 2 or not isinstance(tokens[0], str) or tokens[1] is not ANY:
            return None
        found.append(tokens[0])
    return None if isNot or not found else tuple(found)


def resourceTest(patterns: Sequence[Tokens], isNot: bool) -> ResourceTest | None:
    """
    Compile patterns to a test; L{None} if they match every resource.

    @param isNot: Whether the statement concerns all other resources instead.
    """
    fixed = [matcher(tokens) for tokens in patterns if not hasVariables(tokens)]
    varying = [tokens for tokens in patterns if hasVariables(tokens)]
    if not isNot and (ANY,) in patterns:
        return None
    if len(fixed) == 1 and not varying and not isNot:
        (only,) = fixed
        return lambda resource, context: only(resource)

    def test(resource: str, context: AccessContext) -> bool:
        for matches in fixed:
            if matches(resource):
                return not isNot
        for tokens in varying:
            known = resolved(tokens, context)
            if known is not None and matcher(known)(resource):
                return not isNot
        return isNot

    return test
