"""
What C{bench/profile.py} runs inside a server: Python imports this at its start, before the server.

C{PROFILE_MODE} is C{sample} or C{count}; C{PROFILE_OUTPUT} is the file that is written at the end.
The signal L{BEGIN} begins, L{END} ends and writes. Nothing is recorded before and after.

Sampling interrupts the main thread by a timer of real time, for the kernel serves one of CPU time
only 250 times a second. A sample weighs as much CPU time as its thread has used since the one
before, so a thread that waits weighs nothing. Counting notes each call of a function, also of one
that is written in C.

This file has no imports from the bench: the folder of the file alone is on the path.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from opcode import opmap
from types import CodeType, FrameType
from typing import Any

BEGIN = signal.SIGRTMIN + 1
END = signal.SIGRTMIN + 2
SAMPLE_SECONDS = 0.00103
"""Not a divisor of the ticks of the kernel and of timers."""

WAITS = frozenset(("doPoll", "select", "poll", "wait", "_work"))
"""The functions in which a reactor waits for events, and a thread for work."""

_RESUME = opmap.get("RESUME", -1)
_BUSY_SHARE = 0.9
"""A thread that waits for events, and had less of the time since the last sample, was idle."""

Stack = tuple[object, ...]
"""Ids of code, the innermost first; a function in C has its name in front."""


class Recorder:
    """
    What is common to both modes.

    @ivar weights: Nanoseconds, or calls, of each stack of each thread.
    """

    def __init__(self, output: str) -> None:
        self._output = output
        self.codes: dict[int, CodeType] = {}
        self.weights: dict[int, dict[Stack, int]] = defaultdict(lambda: defaultdict(int))
        self.isOn = False
        self.samples = 0
        self._main = threading.main_thread().ident or 0
        signal.signal(BEGIN, self._begin)
        signal.signal(END, self._end)

    def stackOf(self, frame: FrameType | None) -> Stack:
        """Walk a stack."""
        stack = []
        while frame is not None:
            code = frame.f_code
            number = id(code)
            # Kept, so that the id is not given to another one.
            self.codes[number] = code
            stack.append(number)
            frame = frame.f_back
        return tuple(stack)

    def start(self) -> None:
        """Begin to record."""

    def stop(self) -> None:
        """End recording."""

    def _begin(self, number: int, frame: FrameType | None) -> None:
        self.weights.clear()
        self.samples = 0
        self._cpu = {ident: threadNanos(ident) for ident in sys._current_frames()}
        self._times = os.times()
        self._process = time.process_time_ns()
        self.isOn = True
        self.start()

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.stop()
        self.isOn = False
        process = time.process_time_ns() - self._process
        times = os.times()
        used = {
            ident: threadNanos(ident) - self._cpu.get(ident, 0) for ident in sys._current_frames()
        }
        user, system = times.user - self._times.user, times.system - self._times.system
        threads = [
            {
                "name": self._nameOf(ident),
                "isMain": ident == self._main,
                "nanos": nanos,
                "stacks": [
                    [self._describe(each), weight]
                    for each, weight in [*self.weights[ident].items()]
                ],
            }
            for ident, nanos in used.items()
        ]
        found = {
            "threads": threads,
            "nanos": process,
            "samples": self.samples,
            "userShare": user / (user + system or 1),
        }
        partial = f"{self._output}.part"
        with open(partial, "w") as file:
            json.dump(found, file)
        os.replace(partial, self._output)

    @staticmethod
    def _nameOf(ident: int) -> str:
        thread = threading._active.get(ident)  # type: ignore[attr-defined]
        return thread.name if thread is not None else str(ident)

    def _describe(self, stack: Stack) -> list[tuple[str, str]]:
        """Name the functions of a stack: file and qualified name; a function in C has no file."""
        return [
            (self.codes[each].co_filename, self.codes[each].co_qualname)
            if isinstance(each, int)
            else ("", str(each))
            for each in stack
        ]


class Sampler(Recorder):
    """Looks at the stacks of all threads at equal distances."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self._resumes: dict[int, bytes] = {}

    def start(self) -> None:
        """Begin to record."""
        self._last = dict(self._cpu)
        self._lastWall = time.perf_counter_ns()
        signal.signal(signal.SIGALRM, self._sample)
        signal.setitimer(signal.ITIMER_REAL, SAMPLE_SECONDS, SAMPLE_SECONDS)

    def stop(self) -> None:
        """End recording."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _sample(self, number: int, frame: FrameType | None) -> None:
        wall = time.perf_counter_ns()
        took = wall - self._lastWall
        for ident, top in sys._current_frames().items():
            now = threadNanos(ident)
            used = now - self._last.get(ident, now)
            self._last[ident] = now
            if ident == self._main:
                self._add(self._interrupted(frame), used, took)
            elif used:
                # What a thread that waits has used, it used elsewhere: that counts where it was
                # seen to be at work.
                isAtWork = top.f_code.co_name not in WAITS
                self.weights[ident][self.stackOf(top)] += used if isAtWork else 1
                self.samples += 1
        # The time of this function counts for nothing.
        self._last[self._main] = threadNanos(self._main)
        self._lastWall = time.perf_counter_ns()

    def _add(self, frame: FrameType | None, used: int, took: int) -> None:
        """Add a sample of the main thread, if it was not idle."""
        if frame is None or (frame.f_code.co_name in WAITS and used < _BUSY_SHARE * took):
            return
        self.weights[self._main][self.stackOf(frame)] += used
        self.samples += 1

    def _interrupted(self, frame: FrameType | None) -> FrameType | None:
        """
        Give the frame that was at work when the timer fired.

        Python looks for signals where a function is entered: that one has done nothing yet.
        """
        if frame is None or frame.f_back is None:
            return frame
        number = id(frame.f_code)
        text = self._resumes.get(number)
        if text is None:
            text = self._resumes[number] = frame.f_code.co_code
            self.codes[number] = frame.f_code
        return frame.f_back if text[frame.f_lasti] == _RESUME else frame


class Counter(Recorder):
    """Counts the calls of all functions in all threads that begin after it was made."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        threading.setprofile(self._profile)

    def start(self) -> None:
        """Begin to record."""
        sys.setprofile(self._profile)

    def stop(self) -> None:
        """End recording."""
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.isOn:
            return
        if event == "call":
            self.weights[threading.get_ident()][self.stackOf(frame)] += 1
        elif event == "c_call":
            name = getattr(argument, "__qualname__", str(argument))
            self.weights[threading.get_ident()][(name, *self.stackOf(frame))] += 1


def threadNanos(ident: int) -> int:
    """Give the CPU time that a thread of this process has used."""
    return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))


def install() -> None:
    """Record as the environment says."""
    # Programs that the server starts are not recorded.
    mode, output = os.environ.pop("PROFILE_MODE", ""), os.environ.pop("PROFILE_OUTPUT", "")
    if mode == "sample":
        Sampler(output)
    elif mode == "count":
        Counter(output)


install()
