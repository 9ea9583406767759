"""How failures are told, and what is not tried over and over: a pytest plugin of the whole tree of tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

import pytest

# A fixture that starts servers takes minutes to fail. Each test that wants it would have it fail once more.
TRIES_OF_A_FIXTURE = 2
_SHARED = ("module", "package", "session")

_failed: Counter[object] = Counter()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Refuse a fixture that several tests share, once it has failed as often as it may."""
    if fixturedef.scope not in _SHARED:
        return (yield)
    if _failed[fixturedef] >= TRIES_OF_A_FIXTURE:
        refused = pytest.fail.Exception(
            f"fixture {fixturedef.argname} failed each time before", pytrace=False
        )
        fixturedef.cached_result = (None, fixturedef.cache_key(request), (refused, None))  # type: ignore[arg-type]
        raise refused
    try:
        return (yield)
    except pytest.skip.Exception:
        raise
    except BaseException:
        _failed[fixturedef] += 1
        raise


class FailuresAtOnce:
    """Prints each failure when it happens. A run that is cut off has then said what went wrong."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        outcome: str = report.outcome  # `rerun` is pytest-rerunfailures' own
        if terminal is None or outcome not in ("failed", "rerun"):
            return
        terminal.ensure_newline()
        terminal.write_line(_told(report))

    def pytest_sessionfinish(self) -> None:
        """Tell the first tries again, right before how the last ones failed: in a world that a test has used
        once, the next try may fail of what the first has left there."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and (first_tries := terminal.getreports("rerun")):
            terminal.ensure_newline()
            for report in first_tries:
                terminal.write_line(_told(report))


def _told(report: pytest.TestReport) -> str:
    lines = report.longreprtext.strip().splitlines() or [""]
    cause = next((line for line in lines if line.startswith("E ")), lines[-1])
    return f"{report.outcome}: {report.nodeid}, {report.when}: {cause[:300]}"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # one of several processes: reports go to the one that prints
        config.pluginmanager.register(FailuresAtOnce(config), "failures-at-once")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that passed only when they were run again, and how they failed first.

    `.ci/run` allows that. Each is a defect, of the product or of the test.
    """
    first_tries = terminalreporter.getreports("rerun")
    if not first_tries:
        return
    terminalreporter.section("FAILED ONCE")
    for report in first_tries:
        terminalreporter.section(f"{report.nodeid}, {report.when}", "_")
        terminalreporter.line(report.longreprtext)
    names = sorted({report.nodeid for report in first_tries})
    terminalreporter.section(f"DEFECTS TO MEND: {len(names)} tests failed once")
    for name in names:
        terminalreporter.line(name)
