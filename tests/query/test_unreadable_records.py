"""What one cube or lookup has in ZooKeeper and cannot be read costs its own statements, which are told so;
never another one's, and no answer lacks what a record of it would have named."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest
from rtolap.base.errors import RtolapError
from rtolap.metadata import paths
from rtolap.metadata.store import MetadataStore, Put
from rtolap.model.evolution.revisions import revision_name
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld

from .test_revisions import revised, world_of

STATEMENTS = {
    "flights": "select count(*) n from flights",
    "routes": "select count(*) n from routes",
    "airlines": "select count(*) n from airlines",
    "both": "select count(*) n from flights join airlines on flights.carrier = airlines.carrier",
}
NEEDS = {"flights": {"flights"}, "routes": {"routes"}, "airlines": {"airlines"}}
NEEDS["both"] = NEEDS["flights"] | NEEDS["airlines"]
LISTED = "select table_name as name from information_schema.tables where table_schema = 'rtolap'"


@pytest.fixture(scope="module")
def world() -> Iterator[QueryWorld]:
    """Flights have three revisions, each of which holds a part of them."""
    with closing(world_of(17, 240, revised())) as made:
        yield made


def paths_below(store: MetadataStore, path: str) -> list[str]:
    """Return the nodes that say something."""
    node = store.get(path)
    own = [path] if node is not None and node.data else []
    return own + [each for name in store.children(path) for each in paths_below(store, f"{path}/{name}")]


def owner_of(path: str) -> str:
    """Return the relation whose statements may need the record."""
    name = path.removeprefix(paths.CUBES).removeprefix(paths.LOOKUPS).split("/")[1]
    return "flights" if name.startswith("flights") else name


def answered(service: QueryService, statement: str) -> list[dict[str, object]] | None:
    """Return the rows; None: the statement was refused by an error of ours."""
    try:
        return service.execute(statement).table().to_pylist()
    except RtolapError:
        return None


@pytest.mark.parametrize("seed", range(24))
def test_other_statements_are_answered_and_its_own_are_never_partial(world: QueryWorld, seed: int) -> None:
    rng = random.Random(seed)
    store = world.metadata.store
    with closing(world.service()) as running:
        whole = {name: answered(running, sql) for name, sql in STATEMENTS.items()}
        assert None not in whole.values()
        root = rng.choice([paths.CUBES, paths.CUBES, paths.CUBES, paths.LOOKUPS])
        path = rng.choice(sorted(paths_below(store, root)))
        node = store.get(path)
        assert node is not None
        data = rng.choice([b"{", b"[]", rng.randbytes(40), node.data[: rng.randrange(1, 9)]])
        store.commit([Put(path, data, node.version)])
        try:
            with closing(world.service()) as begun:
                for service in (running, begun):
                    for name, sql in STATEMENTS.items():
                        answer = answered(service, sql)
                        if owner_of(path) not in NEEDS[name]:
                            assert answer == whole[name], (path, name)
                        assert answer in (None, whole[name]), (path, name)
                    listed = {row["name"] for row in answered(service, LISTED) or ()}
                    assert listed >= {"flights", "routes", "airlines"} - {owner_of(path)}, path
        finally:
            present = store.get(path)
            assert present is not None
            store.commit([Put(path, node.data, present.version)])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_series_of_which_a_definition_is_damaged_is_named(world: QueryWorld, number: int) -> None:
    store = world.metadata.store
    path = paths.cube_definition(revision_name("flights", number))
    node = store.get(path)
    assert node is not None
    store.commit([Put(path, b"{", node.version)])
    try:
        with closing(world.service()) as service:
            with pytest.raises(RtolapError, match=r"flights cannot be read: .*definition") as caught:
                service.execute(STATEMENTS["flights"])
            assert caught.value.code == "corrupted"
            assert answered(service, STATEMENTS["routes"]) is not None
    finally:
        present = store.get(path)
        assert present is not None
        store.commit([Put(path, node.data, present.version)])
