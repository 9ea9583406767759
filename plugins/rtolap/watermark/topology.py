"""The way from the sources' watermarks and the units' oldest work to the watermarks of all levels.

    input(source) = its rule;  input(level) = min(output of its upstreams)
    output(level) = min(input, oldest work of its units);  global = min(output of all levels)

Each is the larger of that and what was published before, and unknown (None) counts as before everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from rtolap.model.application import Application


class Unit(msgspec.Struct, frozen=True):
    """A processor and key group of a level: `oldest_work_ms` is what it has taken in and not finished, None
    if there is no such work. It counts until `lease_until_ms`."""

    processor: str
    key_group: int
    oldest_work_ms: int | None
    lease_until_ms: int


class LevelMarks(msgspec.Struct, frozen=True):
    input_ms: int | None = None
    output_ms: int | None = None


class Marks(msgspec.Struct, frozen=True):
    """Watermarks of all levels. `raised` counts those that would have fallen and stayed where they were."""

    levels: dict[str, LevelMarks]
    global_ms: int | None = None
    raised: int = 0


def combine(
    application: Application,
    inputs: Mapping[str, int | None],
    work: Mapping[str, Iterable[Unit]],
    previous: Marks,
    now_ms: int,
) -> Marks:
    """Return the watermarks of all levels. `inputs`: source → its rule's raw watermark. A level that was
    removed takes its watermarks along; a new one begins with what its upstreams say. Pure: equal arguments,
    equal marks."""
    levels: dict[str, LevelMarks] = {}
    raised = 0
    for name in application.in_order():
        before = previous.levels.get(name, LevelMarks())
        upstreams = application.upstreams(name)
        raw = _least(levels[above].output_ms for above in upstreams) if upstreams else inputs.get(name)
        input_ms = _larger(raw, before.input_ms)
        pending = [
            unit.oldest_work_ms
            for unit in work.get(name, ())
            if unit.oldest_work_ms is not None and unit.lease_until_ms > now_ms
        ]
        oldest = _least([input_ms, *pending])
        output_ms = _larger(oldest, before.output_ms)
        raised += (input_ms != raw) + (output_ms != oldest)
        levels[name] = LevelMarks(input_ms, output_ms)
    least = _least(marks.output_ms for marks in levels.values()) if levels else None
    global_ms = _larger(least, previous.global_ms)
    return Marks(levels, global_ms, raised + (global_ms != least))


def _least(instants: Iterable[int | None]) -> int | None:
    """Return the least. None, unknown, is before everything."""
    known: list[int] = []
    for instant_ms in instants:
        if instant_ms is None:
            return None
        known.append(instant_ms)
    return min(known)


def _larger(instant_ms: int | None, before_ms: int | None) -> int | None:
    if instant_ms is None or before_ms is None:
        return before_ms if instant_ms is None else instant_ms
    return max(instant_ms, before_ms)
