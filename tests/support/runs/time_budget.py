"""A limit on the time of a whole run: a pytest plugin. A test that would begin after it is skipped by name.

`.ci/run` has 90 minutes, whatever the machine. On one that is several times slower, what is sorted last is
left out, told, and counted in the closing line; everywhere else nothing is.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

VARIABLE = "RTOLAP_TEST_UNTIL"  # seconds since 1970
REASON = "the time of this run is over"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    until_s = os.environ.get(VARIABLE)
    is_second_try = (
        getattr(item, "execution_count", 1) > 1
    )  # pytest-rerunfailures': a failure is never left out
    if until_s and time.time() > float(until_s) and not is_second_try:
        pytest.skip(REASON)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List by folder how many tests were left out."""
    left_out = Counter(
        report.nodeid.split("::")[0].rpartition("/")[0]
        for report in terminalreporter.getreports("skipped")
        if REASON in str(report.longrepr)
    )
    if left_out:
        terminalreporter.section(f"NOT RUN: {left_out.total()} tests, for {REASON}")
        for folder, count in sorted(left_out.items()):
            terminalreporter.line(f"{folder}: {count}")
