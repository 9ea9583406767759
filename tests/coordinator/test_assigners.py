from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rtolap.base.errors import Refused
from rtolap.coordinator.assigners import ASSIGNERS, ReplicaSetLoad, validate_plan
from rtolap.coordinator.assigners import assign_default as default
from rtolap.coordinator.assigners import assign_round_robin as round_robin

loads = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), min_size=1, max_size=8).map(
    lambda held: [ReplicaSetLoad(f"rs{i}", cubes, partitions) for i, (cubes, partitions) in enumerate(held)]
)
partitions = st.sets(st.integers(0, 200), min_size=1, max_size=60).map(sorted)


@pytest.mark.parametrize("name", sorted(ASSIGNERS))
@settings(max_examples=150)
@given(partitions=partitions, tasks_max=st.integers(-1, 9), replica_sets=loads)
def test_every_plan_gives_each_partition_to_exactly_one_replica_set(
    name: str, partitions: list[int], tasks_max: int, replica_sets: list[ReplicaSetLoad]
) -> None:
    plan = ASSIGNERS[name](partitions, tasks_max, replica_sets)
    validate_plan(plan, partitions, {load.name: ["a receiver"] for load in replica_sets})
    assert plan == ASSIGNERS[name](partitions, tasks_max, replica_sets), "a function of its arguments"
    if name == "default":
        assert len(plan) <= max(1, tasks_max)


def test_the_default_assigner_takes_the_replica_sets_with_the_fewest_cubes() -> None:
    replica_sets = [ReplicaSetLoad("a", 3), ReplicaSetLoad("b", 0), ReplicaSetLoad("c", 1)]
    assert default(range(5), 2, replica_sets) == {"b": (0, 2, 4), "c": (1, 3)}


def test_the_round_robin_assigner_levels_partitions() -> None:
    replica_sets = [ReplicaSetLoad("a", 1, 6), ReplicaSetLoad("b", 1, 1), ReplicaSetLoad("c", 1, 0)]
    # avg = (7 + 5) // 3 = 4: c gets 4, b the one that is left, a is full
    assert round_robin(range(5), 1, replica_sets) == {"c": (0, 1, 2, 3), "b": (4,)}


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"a": (0, 1), "b": (1,)}, "twice"),
        ({"a": (0,)}, "missing"),
        ({"a": (0, 1, 2)}, "unknown"),
        ({"a": (0,), "z": (1,)}, "unknown replica set"),
        ({"a": (0,), "empty": (1,)}, "no receiver"),
    ],
)
def test_a_wrong_plan_is_refused(plan: dict[str, tuple[int, ...]], says: str) -> None:
    with pytest.raises(Refused, match=says):
        validate_plan(plan, [0, 1], {"a": ["r"], "b": ["r"], "empty": []})


def test_a_replica_set_without_partitions_may_be_empty() -> None:
    validate_plan({"a": (0,), "empty": ()}, [0], {"a": ["r"], "empty": []})
