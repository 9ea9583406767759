"""Which settings of a running cube may change: each has a rule, or is refused by name."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from rtolap.base.complete import complete
from rtolap.base.errors import Refused
from rtolap.model.application import CubeWatermark
from rtolap.model.cube import (
    AggregationGroup,
    Cube,
    LatePolicy,
    Measure,
    MergePolicy,
    RetentionPolicy,
    Revision,
    SegmentPolicy,
    cuboids,
)
from rtolap.model.evolution.cube_changes import (
    RULES,
    Follower,
    begins_again,
    cube_changes,
    gone_cuboids,
    new_cuboids,
)

CUBE = Cube(
    name="sales",
    table="events",
    dimensions=("kind", "place"),
    measures=(Measure("count"), Measure("sum", "amount")),
)
# Another value for each field of a cube, and each field of its parts.
OTHERS: dict[str, Cube] = {
    name: msgspec.structs.replace(CUBE, **{name: value})
    for name, value in {
        "name": "other",
        "table": "other",
        "dimensions": ("kind",),
        "time_dimensions": ("day",),
        "week_starts_on": "sunday",
        "time_filters": "refuse",
        "aggregation_groups": (AggregationGroup(include=("kind",)),),
        "measures": (Measure("count"),),
        "truncation": "drop",
        "start": "latest",
        "consumer_tasks_max": 7,
        "watermark": CubeWatermark(application="app", source="cubes", sink="out"),
        "revision": Revision("sales", 1),
    }.items()
} | {
    f"{part}.{name}": msgspec.structs.replace(
        CUBE, **{part: msgspec.structs.replace(getattr(CUBE, part), **{name: value})}
    )
    for part, values in {
        "segment": {
            "window_ms": 60_000,
            "allowed_lateness_ms": 1,
            "sliding_window_ms": 1,
            "sliding_window_max_ms": 1,
        },
        "retention": {"policy": "PURGE", "after_ms": 1},
        "late": {"policy": "drop", "merge_after_ms": 1},
        "merge": {"to": ("day",), "after_ms": 1},
    }.items()
    for name, value in values.items()
}
ALTERABLE = {
    "aggregation_groups",
    "retention.after_ms",
    "late.merge_after_ms",
    "merge.to",
    "merge.after_ms",
    "segment.allowed_lateness_ms",
    "segment.sliding_window_ms",
    "segment.sliding_window_max_ms",
    "time_filters",
    "truncation",
    "consumer_tasks_max",
}


def test_every_setting_is_tried_here() -> None:
    parts = {"segment": SegmentPolicy, "retention": RetentionPolicy, "late": LatePolicy, "merge": MergePolicy}
    names = {field.name for field in msgspec.structs.fields(Cube)} - parts.keys()
    for part, kind in parts.items():
        names |= {f"{part}.{field.name}" for field in msgspec.structs.fields(kind)}
    assert OTHERS.keys() == names
    assert RULES.keys() == ALTERABLE


@pytest.mark.parametrize("setting", sorted(OTHERS))
def test_each_setting_is_changed_with_its_meaning_or_refused_by_name(setting: str) -> None:
    after = OTHERS[setting]
    if setting not in ALTERABLE:
        with pytest.raises(Refused, match=f"cannot change {setting}; expected changes of .*another cube"):
            cube_changes(CUBE, after)
        assert begins_again(CUBE, after)  # whoever wrote it: a receiver never goes on by what is no more
        return
    (change,) = cube_changes(CUBE, after)
    assert change.setting == setting
    assert change.before != change.after
    assert change.meaning
    assert begins_again(CUBE, after) == (Follower.RECEIVERS in change.followers)


def test_an_equal_definition_changes_nothing() -> None:
    assert cube_changes(CUBE, msgspec.structs.replace(CUBE)) == ()
    assert not begins_again(CUBE, CUBE)


def test_drawn_changes_are_those_that_were_made_and_one_that_cannot_be_refuses_all() -> None:
    dice = random.Random(4)
    for _ in range(200):
        chosen = dice.sample(sorted(OTHERS), dice.randrange(1, 6))
        after: dict[str, Any] = complete(CUBE)
        for setting in chosen:
            part, _, inner = setting.partition(".")
            value = complete(OTHERS[setting])
            if inner:
                after[part] = {**after[part], inner: value[part][inner]}
            else:
                after[part] = value[part]
        changed = msgspec.convert(after, Cube)
        fixed = set(chosen) - ALTERABLE
        if fixed:
            with pytest.raises(Refused) as refused:
                cube_changes(CUBE, changed)
            assert all(setting in str(refused.value) for setting in fixed)
        else:
            assert {change.setting for change in cube_changes(CUBE, changed)} == set(chosen)


def test_cuboids_that_come_and_go_are_named() -> None:
    after = msgspec.structs.replace(
        CUBE, aggregation_groups=(AggregationGroup(include=("kind", "day_start")),)
    )
    assert set(new_cuboids(CUBE, after)) == {"_all", "kind", "day_start", "day_start+kind"}
    assert gone_cuboids(CUBE, after) == ()
    assert set(gone_cuboids(after, CUBE)) == set(new_cuboids(CUBE, after))
    assert len(cuboids(after)) == 5
