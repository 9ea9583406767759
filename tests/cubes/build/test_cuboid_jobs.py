"""Which cuboids of a large batch share a Spark job, and out of which parent."""

from __future__ import annotations

from collections.abc import Mapping

from rtolap.cubes.build.cuboid_writers import PARENT_BYTES_SMALL, next_job
from rtolap.cubes.build.grouping import GROUPED_DIMENSIONS_MAX
from rtolap.model.cube import AggregationGroup, Cube, Cuboid, cuboids

ABC = cuboids(
    Cube(
        name="c",
        table="t",
        dimensions=("a", "b", "c"),
        measures=(),
        time_dimensions=(),
        aggregation_groups=(AggregationGroup(include=("a", "b", "c")),),
    )
)
LARGE = PARENT_BYTES_SMALL + 1


def jobs(all_cuboids: tuple[Cuboid, ...], bytes_by_name: Mapping[str, int]) -> list[tuple[str, list[str]]]:
    """Parent and cuboids of each job, all of them done in turn."""
    sizes = {all_cuboids[0].name: bytes_by_name[all_cuboids[0].name]}
    found = []
    while (job := next_job(all_cuboids, sizes)) is not None:
        found.append((job.parent.name, [cuboid.name for cuboid in job.cuboids]))
        assert not {cuboid.name for cuboid in job.cuboids} & sizes.keys()
        assert all(set(cuboid.dimensions) <= set(job.parent.dimensions) for cuboid in job.cuboids)
        sizes |= {cuboid.name: bytes_by_name.get(cuboid.name, 1) for cuboid in job.cuboids}
    assert sizes.keys() == {cuboid.name for cuboid in all_cuboids}
    return found


def test_one_job_makes_all_others_out_of_a_small_base() -> None:
    assert jobs(ABC, {"a+b+c": PARENT_BYTES_SMALL}) == [
        ("a+b+c", ["a+b", "a+c", "b+c", "a", "b", "c", "_all"])
    ]


def test_a_large_base_is_read_once_and_smaller_cuboids_come_out_of_smaller_parents() -> None:
    sizes = {"a+b+c": LARGE, "a+b": 9, "a+c": 8, "b+c": 7}
    assert jobs(ABC, sizes) == [
        ("a+b+c", ["a+b", "a+c", "b+c"]),
        ("a+c", ["a", "c", "_all"]),
        ("b+c", ["b"]),
    ]


def test_cuboids_of_a_level_share_a_job_where_they_share_their_smallest_parent() -> None:
    sizes = {"a+b+c": 2 * LARGE, "a+b": LARGE, "a+c": LARGE + 1, "b+c": LARGE + 2, "a": LARGE, "b": 5, "c": 6}
    assert jobs(ABC, sizes) == [
        ("a+b+c", ["a+b", "a+c", "b+c"]),
        ("a+b", ["a", "b"]),
        ("a+c", ["c"]),
        ("b", ["_all"]),
    ]


def test_a_parent_of_more_dimensions_than_grouping_sets_take_makes_one_cuboid_a_job() -> None:
    dimensions = GROUPED_DIMENSIONS_MAX + 1
    names = tuple(f"d{number}" for number in range(dimensions))
    wide = cuboids(
        Cube(
            name="c",
            table="t",
            dimensions=names,
            measures=(),
            time_dimensions=(),
            aggregation_groups=(AggregationGroup(include=("d0", "d1")),),
        )
    )
    assert jobs(wide, {wide[0].name: 1}) == [(wide[0].name, ["d0+d1"]), ("d0+d1", ["d0", "d1", "_all"])]
