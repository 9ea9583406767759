"""A second try begins in a world of its own: a pytest plugin of the whole tree of tests.

A module's tests share its fixtures: a cluster, a table, a loader. What a failed try has left there would fail
the next one for another reason, and the first reason would be lost.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when != "teardown":
        item.stash[_FAILED] = report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """End the fixtures of the module, too, behind a try that failed, if another one follows.

    pytest-rerunfailures finds nothing left to be kept for the next try then.
    """
    tries = getattr(item, "execution_count", 1)  # pytest-rerunfailures' own, as is the option
    follows = tries <= (item.config.getoption("reruns", None) or 0)
    module = item.getparent(pytest.Module)
    try:
        if item.stash.get(_FAILED, False) and follows and module is not None and module.parent is not None:
            item.session._setupstate.teardown_exact(module.parent)  # type: ignore[arg-type]
    finally:
        yield
    return None
