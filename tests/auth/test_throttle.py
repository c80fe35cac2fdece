"""The brake on guessing."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth import throttle


class FailureThrottleTests(SynchronousTestCase):
    """Failures are counted by source and window."""

    def setUp(self) -> None:
        """Make a throttle on a clock of our own."""
        self.clock = Clock()
        self.throttle = throttle.AuthFailureThrottle(self.clock)

    def test_slowedAfterTheFreeOnes(self) -> None:
        """The free failures are answered at once, every further one late; others are unharmed."""
        waits = [self.throttle.failed("a") for _ in range(throttle.FREE_FAILURES)]
        self.assertEqual(set(waits), {0.0})
        self.assertEqual(self.throttle.failed("a"), throttle.DELAY_SECONDS)
        self.assertEqual(self.throttle.failed("b"), 0.0)

    def test_spaced(self) -> None:
        """Failures of one source at once are answered one after another, as a network of IPv6."""
        for number in range(throttle.FREE_FAILURES):
            self.throttle.failed(f"2001:db8::{number:x}")
        waits = [self.throttle.failed(f"2001:db8::1:{number:x}") for number in range(300)]
        delay = throttle.DELAY_SECONDS
        self.assertEqual(waits[:4], [delay, 2 * delay, 3 * delay, 4 * delay])
        self.assertEqual(set(waits[240:]), {throttle.LONGEST_SECONDS})
        self.clock.advance(throttle.LONGEST_SECONDS)
        self.assertEqual(self.throttle.failed("2001:db8::1"), delay)

    def test_forgotten(self) -> None:
        """After the window a source is free again."""
        for _ in range(throttle.FREE_FAILURES + 1):
            self.throttle.failed("a")
        self.clock.advance(throttle.WINDOW_SECONDS + 1)
        self.assertEqual(self.throttle.failed("a"), 0.0)

    def test_bounded(self) -> None:
        """A flood of sources forgets the longest unseen and keeps the recent."""
        for _ in range(throttle.FREE_FAILURES + 1):
            self.throttle.failed("early")
        for number in range(throttle.SOURCES - 1):
            self.throttle.failed(str(number))
        self.assertEqual(self.throttle.failed("early"), 2 * throttle.DELAY_SECONDS)
        for number in range(throttle.SOURCES):
            self.throttle.failed(str(number))
        self.assertEqual(self.throttle.failed("early"), 0.0)
