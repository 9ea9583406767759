"""A drop whose answer was lost is sent again: what was made since stays, and the first answer is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from rtolap.base.errors import DefinitionError, NotFound, Refused
from rtolap.metadata import paths
from rtolap.metadata.requests import RETENTION_MS
from rtolap.protocols.coordinator import calls
from rtolap.protocols.rest.request import Call
from rtolap.protocols.rest.request_ids import HEADER

from tests.support.cubes.coordinator_harness import NAME, TABLE, Cluster
from tests.support.watermarks.application_reports import application

LOOKUP = {"name": "pages", "file": "pages.csv", "columns": [{"name": "page", "type": "string"}]}


def make_cube(cluster: Cluster) -> None:
    cluster.define()


def make_table(cluster: Cluster) -> None:
    cluster.client.create_table({**TABLE, "name": "views"})


def make_lookup(cluster: Cluster) -> None:
    cluster.client.create_lookup(LOOKUP)


def make_application(cluster: Cluster) -> None:
    cluster.client.create_application(application())


KINDS: list[tuple[Callable[[Cluster], None], Callable[[], Call[None]], Callable[[Cluster], list[str]]]] = [
    (make_cube, lambda: calls.drop_cube(NAME), lambda it: [one.name for one in it.client.cubes()]),
    (make_table, lambda: calls.drop_table("views"), lambda it: it.client.tables()),
    (make_lookup, lambda: calls.drop_lookup("pages"), lambda it: it.client.lookups()),
    (
        make_application,
        lambda: calls.drop_application(str(application()["name"])),
        lambda it: it.client.applications(),
    ),
]
each_kind = pytest.mark.parametrize(
    ("make", "drop", "names"), KINDS, ids=["cube", "table", "lookup", "application"]
)


@each_kind
def test_what_was_made_after_a_drop_stays_when_the_drop_comes_again(
    cluster: Cluster,
    make: Callable[[Cluster], None],
    drop: Callable[[], Call[None]],
    names: Callable[[Cluster], list[str]],
) -> None:
    before = names(cluster)
    make(cluster)
    there = names(cluster)
    request = drop()
    cluster.client.send(request)
    make(cluster)
    cluster.client.send(request)
    assert names(cluster) == there != before
    cluster.client.send(drop())
    assert names(cluster) == before


@each_kind
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_drop_whose_commit_is_in_doubt_is_made_once(
    cluster: Cluster,
    make: Callable[[Cluster], None],
    drop: Callable[[], Call[None]],
    names: Callable[[Cluster], list[str]],
    when: Literal["before", "after"],
) -> None:
    before = names(cluster)
    make(cluster)
    faults = [when]
    cluster.ensemble.fault = lambda _: faults.pop() if faults else None
    cluster.client.send(drop())
    assert (names(cluster), faults) == (before, [])


@each_kind
def test_a_drop_that_was_refused_stays_refused(
    cluster: Cluster,
    make: Callable[[Cluster], None],
    drop: Callable[[], Call[None]],
    names: Callable[[Cluster], list[str]],
) -> None:
    request = drop()
    with pytest.raises(NotFound) as first:
        cluster.client.send(request)
    make(cluster)
    there = names(cluster)
    with pytest.raises(NotFound) as again:
        cluster.client.send(request)
    assert str(again.value) == str(first.value)
    assert names(cluster) == there


def test_an_id_is_for_one_request_and_is_forgotten_in_the_end(cluster: Cluster) -> None:
    make_table(cluster)
    make_lookup(cluster)
    request = calls.drop_table("views")
    cluster.client.send(request)
    other = calls.drop_lookup("pages")
    stolen = Call(other.method, other.path, other.answer, request_id=request.request_id)
    with pytest.raises(Refused, match="has been another change"):
        cluster.client.send(stolen)
    assert cluster.client.lookups() == ["pages"]
    cluster.clock.advance_ms(RETENTION_MS)
    assert cluster.coordinator.requests.forget() == 0
    cluster.clock.advance_ms(1)
    assert cluster.coordinator.requests.forget() == 1
    assert cluster.metadata.store.children(paths.REQUESTS) == ()
    bad = Call(other.method, other.path, other.answer, request_id="short")
    with pytest.raises(DefinitionError, match=HEADER):
        cluster.client.send(bad)
