"""Rounds of the lifecycle scanner among other operations, on the store and on its model."""

from random import Random

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.records import (
    COMPLIANCE,
    GOVERNANCE,
    VERSIONING_ENABLED,
    VERSIONING_SUSPENDED,
    WriteCondition,
)
from tests.storage.test_store_model import ALL_RULES, DelayedStoreMachine, StoreMachine
from tests.support.model import DAY
from tests.support.selection import long, rounds

KEYS = (b"a", b"a/b", b"a/c")
BODIES = (b"", b"inline", b"x" * 200)
STEPS = (
    *("put",) * 9,
    *("scan", "hold") * 4,
    *("delete", "tag", "retain") * 2,
    "remove",
    "rules",
    "lock",
    "suspend",
    "upload",
    "copy",
)


class Life:
    """
    Operations at random on a store and on its model, of which there are many to be removed.

    @ivar machine: Does them on both, and compares.
    @ivar removed: How much rounds have removed.
    @ivar kept: How many versions were due and locked.
    """

    def __init__(self, machine: StoreMachine, seed: int) -> None:
        self.machine = machine
        self.removed = self.kept = 0
        self._random = Random(seed)
        machine.begin()
        machine.createBucket()
        for bucket in "one", "two":
            machine.setRules(bucket, self._rules())
        machine.setVersioning("one", VERSIONING_ENABLED)
        machine.setObjectLock("one", "")
        machine.setVersioning("two", self._random.choice([VERSIONING_ENABLED, ""]))

    def step(self) -> None:
        """Do one thing."""
        random, machine = self._random, self.machine
        bucket, key = random.choice(["one", "two"]), random.choice(KEYS)
        name = (bucket, key, random.randrange(3))
        match random.choice(STEPS):
            case "put":
                machine.put(bucket, key, random.choice(BODIES), WriteCondition())
            case "scan":
                removed, kept = machine.scanAfter(random.choice([1, 1.5, 2, 4]))
                self.removed += removed
                self.kept += kept
            case "delete":
                machine.delete(bucket, [key])
            case "remove":
                machine.deleteVersions(bucket, [name[1:]], random.random() < 0.5)
            case "tag":
                machine.tag(name, random.choice(["", "t=1", "t=1&u=2"]))
            case "hold":
                machine.hold(name, random.random() < 0.7)
            case "retain":
                mode = random.choice([GOVERNANCE, COMPLIANCE, ""])
                machine.retain(name, (mode, random.choice([2, 2 * DAY, 5 * DAY])), False)
            case "rules":
                machine.setRules(bucket, self._rules())
            case "lock":
                machine.setObjectLock("one", random.choice(["", GOVERNANCE]))
            case "suspend":
                machine.setVersioning("two", VERSIONING_SUSPENDED)
            case "upload":
                machine.createUpload(bucket, key, random.choice(["u1", "u2"]))
            case "copy":
                machine.copyVersion(bucket, key, random.choice(KEYS), name[2])

    def _rules(self) -> tuple[object, ...]:
        return tuple(self._random.sample(ALL_RULES, self._random.randint(1, 3)))


def liveOn(machine: type[StoreMachine], seeds: int, steps: int) -> tuple[int, int]:
    """Live some lives; say how much rounds removed in them, and how much was due and locked."""
    removed = kept = 0
    for seed in range(seeds):
        life = Life(machine(), seed)
        try:
            for _ in range(steps):
                life.step()
        finally:
            life.machine.teardown()
        removed += life.removed
        kept += life.kept
    return removed, kept


class LifecycleModelTests(SynchronousTestCase):
    """The store beside its model."""

    machine: type[StoreMachine] = StoreMachine
    seeds = 10

    @long("takes seconds")
    def test_agree(self) -> None:
        """Each round removes what the model says, keeps the rest, and never what is locked."""
        removed, kept = liveOn(
            self.machine, seeds=rounds(self.seeds, self.seeds, soak=10), steps=50
        )
        self.assertGreater(removed, 5 * self.seeds)
        self.assertGreater(kept, 0.3 * self.seeds)


@long("takes seconds")
class DelayedLifecycleModelTests(LifecycleModelTests):
    """The same with look-ups that come back late and out of order."""

    machine = DelayedStoreMachine
    seeds = 3
