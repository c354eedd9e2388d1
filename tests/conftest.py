"""What all tests share: bytecode, time by directory, what tests measure, how hypothesis behaves.

A test tells a figure by ``record_property("told", text)``; it is printed at the end.
"""

import os
import sys
from collections import Counter, defaultdict
from pathlib import PurePosixPath

import hypothesis
import pytest

# Tests start some thousand programs and workers; where no bytecode is kept, each compiles anew
# all that it imports, which takes longer than what it is started for.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A deadline for one example measures the load of the machine; pytest-timeout bounds every test.
hypothesis.settings.register_profile("sealmail", deadline=None)
hypothesis.settings.load_profile("sealmail")


class DirectoryTimes:
    """A pytest plugin that adds up the seconds spent in each directory under tests/.

    It also keeps what tests tell of what they measured.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tests: Counter[str] = Counter()
        self._told: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count set-up, call and tear-down of every test; the call makes it one test."""
        directory = directory_of(report.nodeid)
        self._seconds[directory] += report.duration
        self._tests[directory] += report.when == "call"
        if report.when == "call":
            test = report.nodeid.rpartition("::")[2]
            self._told += [
                (test, str(text)) for name, text in report.user_properties if name == "told"
            ]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what tests have told, and one line for each directory, the slowest first."""
        if self._told:
            terminalreporter.section("what the tests have measured")
        for test, text in self._told:
            terminalreporter.write_line(f"{test}: {text}")
        terminalreporter.section("time of each test directory")
        for directory in sorted(self._seconds, key=self._seconds.__getitem__, reverse=True):
            terminalreporter.write_line(
                f"{self._seconds[directory]:8.2f} s  {self._tests[directory]:5} tests  {directory}"
            )


def directory_of(nodeid: str) -> str:
    """Return the directory directly under tests/ that a test lives in, or tests itself."""
    parents = PurePosixPath(nodeid.partition("::")[0]).parent.parts
    return "/".join(parents[:2])


def pytest_configure(config: pytest.Config) -> None:
    """Register the time keeper."""
    config.pluginmanager.register(DirectoryTimes(), "sealmail-directory-times")
