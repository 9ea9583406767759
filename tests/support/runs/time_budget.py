"""A limit on the time of a whole run: a pytest plugin. A test that would begin after it is skipped by name.

Where there is a limit, the run ends with the minutes that each folder's tests took, over all processes.

`.ci/run` has 90 minutes, whatever the machine. On one that is several times slower, what is sorted last is
left out, told, and counted in the closing line; everywhere else nothing is.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict

import pytest

VARIABLE = "RTOLAP_TEST_UNTIL"  # seconds since 1970
REASON = "the time of this run is over"
_SHOWN_S_MIN = 30.0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    until_s = os.environ.get(VARIABLE)
    is_second_try = (
        getattr(item, "execution_count", 1) > 1
    )  # pytest-rerunfailures': a failure is never left out
    if until_s and time.time() > float(until_s) and not is_second_try:
        pytest.skip(REASON)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List by folder how long tests took, and how many were left out."""
    if os.environ.get(VARIABLE):
        _list_minutes(terminalreporter)
    left_out = Counter(
        report.nodeid.split("::")[0].rpartition("/")[0]
        for report in terminalreporter.getreports("skipped")
        if REASON in str(report.longrepr)
    )
    if left_out:
        terminalreporter.section(f"NOT RUN: {left_out.total()} tests, for {REASON}")
        for folder, count in sorted(left_out.items()):
            terminalreporter.line(f"{folder}: {count}")


def _list_minutes(terminalreporter: pytest.TerminalReporter) -> None:
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[_folder(report.nodeid)] += report.duration
    terminalreporter.section("MINUTES by folder, of all processes together")
    ranked = sorted(seconds.items(), key=lambda one: -one[1])
    shown = [(folder, spent_s / 60) for folder, spent_s in ranked if spent_s >= _SHOWN_S_MIN]
    terminalreporter.line(", ".join(f"{folder} {minutes:.1f}" for folder, minutes in shown))


def _folder(node_id: str) -> str:
    """Return the folder of a test's file; integration tests by its second level, others by its first."""
    parts = node_id.split("::", maxsplit=1)[0].split("/")[1:-1]
    return "/".join(parts[: 2 if parts[:1] == ["integration"] else 1])
