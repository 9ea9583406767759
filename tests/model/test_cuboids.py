"""Which cuboids aggregation groups ask for, and from which each is built."""

from __future__ import annotations

import random
from itertools import chain, combinations

from rtolap.model.cube import AggregationGroup, Cube, Cuboid, cuboids, smallest_parents

NAMES = ("a", "b", "c", "d", "e")


def cube(*groups: AggregationGroup) -> Cube:
    return Cube(name="c", table="t", dimensions=NAMES, time_dimensions=(), aggregation_groups=groups)


def names(*groups: AggregationGroup) -> list[str]:
    return [cuboid.name for cuboid in cuboids(cube(*groups))]


def test_without_groups_the_base_cuboid_is_all() -> None:
    assert names() == ["a+b+c+d+e"]


def test_a_group_without_rules_asks_for_every_combination() -> None:
    assert set(names(AggregationGroup(("a", "b")))) == {"a+b+c+d+e", "a+b", "a", "b", "_all"}


def test_mandatory_dimensions_are_everywhere() -> None:
    assert set(names(AggregationGroup(("a", "b", "c"), mandatory=("b",)))) == {
        "a+b+c+d+e",
        *("b", "a+b", "b+c", "a+b+c"),
    }


def test_of_a_hierarchy_only_beginnings_occur_and_joints_come_together() -> None:
    group = AggregationGroup(NAMES, hierarchies=(("c", "a"),), joints=(("b", "d"),), mandatory=("e",))
    assert set(names(group)) == {
        "a+b+c+d+e",
        *("e", "c+e", "a+c+e", "b+d+e", "b+c+d+e"),
    }


def test_each_is_named_once_base_first_and_larger_before_smaller() -> None:
    found = cuboids(cube(AggregationGroup(("a", "b", "c")), AggregationGroup(("b", "c", "d"))))
    assert len(set(found)) == len(found)
    sizes = [len(cuboid.dimensions) for cuboid in found]
    assert sizes == sorted(sizes, reverse=True)
    assert all(cuboid.dimensions == tuple(sorted(cuboid.dimensions)) for cuboid in found)


def test_rules_equal_their_definition_on_random_groups() -> None:
    rng = random.Random(5)
    for _ in range(200):
        include = tuple(rng.sample(NAMES, rng.randrange(1, 6)))
        cuts = sorted(rng.randrange(len(include) + 1) for _ in range(3))
        mandatory, hierarchy, joint = (
            include[: cuts[0]],
            include[cuts[0] : cuts[1]],
            include[cuts[1] : cuts[2]],
        )
        group = AggregationGroup(
            include, mandatory, (hierarchy,) if len(hierarchy) > 1 else (), (joint,) if len(joint) > 1 else ()
        )
        every = chain.from_iterable(combinations(NAMES, size) for size in range(len(NAMES) + 1))
        expected = {NAMES}
        for chosen in map(set, every):
            levels = [name in chosen for name in hierarchy]
            if (
                chosen <= set(include)
                and set(mandatory) <= chosen
                and (len(hierarchy) < 2 or levels == sorted(levels, reverse=True))
                and (len(joint) < 2 or len(chosen & set(joint)) in (0, len(joint)))
            ):
                expected.add(tuple(sorted(chosen)))
        assert {cuboid.dimensions for cuboid in cuboids(cube(group))} == expected, group


def test_each_is_built_from_the_smallest_that_contains_it() -> None:
    found = tuple(map(Cuboid, (("a", "b", "c"), ("a", "b"), ("b", "c"), ("b",), ())))
    rows = {"a+b+c": 100, "a+b": 90, "b+c": 20, "b": 5}
    assert smallest_parents(found, rows) == {"a+b": "a+b+c", "b+c": "a+b+c", "b": "b+c", "_all": "b"}
    assert smallest_parents(found, {})["_all"] == "b", "unknown sizes: fewer dimensions"
