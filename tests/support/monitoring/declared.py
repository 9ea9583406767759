"""A plugin that holds each metric which the product declares in a test's process against the catalogue.

A service of a test's own name is left out: what a product's module declares for it is compared elsewhere.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from rtolap.base.metric_catalogue import CATALOGUE
from rtolap.base.metrics import Metrics

from tests.support.monitoring.catalogued import misfit
from tests.support.paths import PLUGINS

_DECLARING = {
    "counter": "counter",
    "counter_family": "counter",
    "gauge": "gauge",
    "gauge_family": "gauge",
    "histogram": "histogram",
}
_found: list[str] = []


def _checked(metric_type: str, declare: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(declare)
    def declared(
        metrics: Metrics, what: str, purpose: str, labels: Sequence[str] = (), *more: Any, **others: Any
    ) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        if metrics.service in CATALOGUE and caller.startswith(str(PLUGINS)):
            wrong = misfit(metrics.service, what, metric_type, purpose, labels)
            if wrong is not None:
                _found.append(f"{caller}: {wrong}")  # a thread of a server may have declared it
        return declare(metrics, what, purpose, labels, *more, **others)

    return declared


@contextmanager
def watched() -> Iterator[list[str]]:
    """Note misfits of whatever is declared meanwhile, and give the list."""
    before = {name: getattr(Metrics, name) for name in _DECLARING}
    _found.clear()
    try:
        for name, metric_type in _DECLARING.items():
            setattr(Metrics, name, _checked(metric_type, before[name]))
        yield _found
    finally:
        for name, declare in before.items():
            setattr(Metrics, name, declare)


@pytest.fixture(autouse=True, scope="session")
def _metrics_are_watched() -> Iterator[None]:
    with watched():
        yield


@pytest.fixture(autouse=True)
def _metrics_are_of_the_catalogue(_metrics_are_watched: None) -> Iterator[None]:
    yield
    found = [*dict.fromkeys(_found)]
    _found.clear()
    assert found == []
