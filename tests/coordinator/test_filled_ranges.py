"""How far a revision is filled, in drawn standings of two revisions.

Whatever the older one's history holds of a time that statements read from the newer one, that one has read,
and is answered for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
from rtolap.coordinator.alterations.filling import Filled, filled_back_to
from rtolap.metadata.records import SegmentRecord
from rtolap.model.cube import Cube, Revision, SegmentPolicy
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentRange, SegmentState

from tests.support.seeds import notices, so_many

PARTITIONS, WINDOWS, LOG = 2, 12, 60
States = SegmentState
Covered = Callable[[SegmentRecord], Offsets]


class Event(NamedTuple):
    partition: int
    offset: int
    at_ms: int


def revision_of(name: str, number: int, window_ms: int, **revision: object) -> Cube:
    return Cube(
        name=name,
        table="t",
        dimensions=(),
        segment=SegmentPolicy(window_ms=window_ms),
        revision=Revision("c", number, **revision),  # type: ignore[arg-type]
    )


def record(cube: Cube, start_ms: int, state: SegmentState, covered: Offsets, **more: object) -> SegmentRecord:
    return SegmentRecord(
        cube=cube.name,
        start_ms=start_ms,
        end_ms=start_ms + cube.segment.window_ms,
        state=state,
        version=int(state is not States.IMMUTABLE),
        covered=covered,
        **more,  # type: ignore[arg-type]
    )


def run(seed: int) -> None:
    """Draw a standing, and hold what is filled against the events."""
    draw = random.Random(seed)
    events = [
        Event(partition, offset, draw.randrange(WINDOWS))
        for partition in range(PARTITIONS)
        for offset in range(LOG)
    ]
    by_batch = draw.random() < 0.4
    older = revision_of("c", 1, draw.choice((1, 2)), until_ms=WINDOWS)
    newer = revision_of(
        "c_r2",
        2,
        draw.choice((1, 2, 3)),
        since_ms=WINDOWS,
        fills_from_ms=0,
        filled_by="batch" if by_batch else "topic",
    )
    purged = draw.choice((None, None, 2, 5))
    positions = {partition: draw.randrange(LOG // 2, LOG) for partition in range(PARTITIONS)}
    olders, owns = {}, {}
    unrecorded = list[SegmentRecord]()
    for start in range(0, WINDOWS, older.segment.window_ms):
        covered = {partition: draw.randrange(LOG * 3 // 4) for partition in range(PARTITIONS)}
        end = start + older.segment.window_ms
        within = [each for each in events if start <= each.at_ms < end]
        is_purged = purged is not None and end <= purged
        state = States.PURGED if is_purged else draw.choice((*[States.READY] * 9, States.IMMUTABLE))
        held = sum(each.offset < covered[each.partition] for each in within)
        made = record(older, start, state, covered, events=held)
        if not is_purged and draw.random() < 0.05:
            unrecorded.append(made)  # receivers have its events, and nothing else says that it is there
        else:
            olders[str(start)] = made  # names are of seconds
    for start in range(0, WINDOWS, newer.segment.window_ms):
        if draw.random() < 0.95:
            batch = "b" if draw.random() < 0.9 else ""
            made = record(newer, start, States.READY, {}, batch=batch)
            owns[str(start)] = made
    own_horizon = draw.choice((None, purged))
    filled = filled_back_to(
        newer,
        older,
        owns,
        olders,
        held=[SegmentRange(each.start_ms, each.end_ms) for each in unrecorded],
        horizons=(own_horizon, purged),
        positions=positions,
        covered=lambda one: one.covered,
    )
    hold(filled, older, newer, owns, olders, positions, events)
    assert all(each.end_ms <= filled.since_ms for each in unrecorded), (
        f"seed {seed}: lost: what receivers hold"
    )
    if own_horizon is None and purged is not None:
        assert filled.since_ms >= purged, f"seed {seed}: what was purged comes back"


def hold(
    filled: Filled,
    older: Cube,
    newer: Cube,
    owns: dict[str, SegmentRecord],
    olders: dict[str, SegmentRecord],
    positions: Offsets,
    events: list[Event],
) -> None:
    assert newer.revision is not None
    for cube in (older, newer):
        assert filled.since_ms % cube.segment.window_ms == 0, "a start of segments of both"
    for one in olders.values():
        if one.start_ms < filled.since_ms or one.state is States.PURGED:
            continue
        assert one.state is States.READY, "its next version is not known"
        held = [
            each
            for each in events
            if one.start_ms <= each.at_ms < one.end_ms and each.offset < one.covered[each.partition]
        ]
        for each in held:
            answered = min(filled.vector.get(each.partition, 0), positions[each.partition])
            assert each.offset < answered, f"lost: {each}"
        own = [each for each in owns.values() if each.start_ms < one.end_ms and each.end_ms > one.start_ms]
        if held and newer.revision.filled_by == "batch":
            assert own, "no batch has said anything of it"
            assert all(each.batch for each in own), "a part of it is the topic's alone"


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(300)))
def test_a_moment_never_passes_what_is_not_there(seed: int) -> None:
    run(seed)


def test_some_are_filled_wholly_and_some_not_at_all() -> None:
    """So that the runs show something."""
    moments = set()
    original = filled_back_to

    def noted(*known: object, **more: object) -> Filled:
        found = original(*known, **more)  # type: ignore[arg-type]
        moments.add(found.since_ms)
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(globals(), "filled_back_to", noted)
        for seed in range(300):
            run(seed)
    assert {0, WINDOWS} < moments


@pytest.mark.parametrize(("fault", "first_seed"), [("vectors", 0), ("positions", 6), ("held", 9)])
def test_the_runs_notice_who_passes_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch, fault: str, first_seed: int
) -> None:
    original = filled_back_to

    def careless(*known: object, covered: Covered, positions: Offsets, **more: object) -> Filled:
        if fault == "held":
            return original(*known, covered=covered, positions=positions, **{**more, "held": ()})  # type: ignore[arg-type]
        if fault == "vectors":
            return original(*known, covered=lambda one: {}, positions=positions, **more)  # type: ignore[arg-type]
        far = dict.fromkeys(positions, LOG)
        return original(*known, covered=covered, positions=far, **more)  # type: ignore[arg-type]

    monkeypatch.setitem(globals(), "filled_back_to", careless)
    assert notices(run, first_seed, "lost", seeds=300)
