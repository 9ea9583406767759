"""Are a cube's segment window, retention and late policy sensible?"""

from __future__ import annotations

from rtolap.model.cube import Cube
from rtolap.model.durations import format_duration
from rtolap.model.validation.problems import Problem, bound_problems

WINDOW_MIN_MS = 1000  # segment names count seconds
WINDOW_MAX_MS = 366 * 86_400_000
CONSUMER_TASKS_MAX = 1024
_DAY_MS = 86_400_000


def policy_problems(cube: Cube) -> list[Problem]:
    segment, retention, late = cube.segment, cube.retention, cube.late
    found: list[Problem] = []
    window = segment.window_ms
    if not WINDOW_MIN_MS <= window <= WINDOW_MAX_MS:
        bounds = f"{format_duration(WINDOW_MIN_MS)} to {format_duration(WINDOW_MAX_MS)}"
        found.append(
            Problem(("segment", "window_ms"), "out of bounds", expected=bounds, found=_spell(window))
        )
    elif window % WINDOW_MIN_MS or (_DAY_MS % window and window % _DAY_MS):
        found.append(
            Problem(
                ("segment", "window_ms"),
                "segments would not line up with days",
                expected="whole seconds that divide a day, or whole days",
                found=_spell(window),
            )
        )
    for name, value in (
        ("allowed_lateness_ms", segment.allowed_lateness_ms),
        ("sliding_window_ms", segment.sliding_window_ms),
        ("sliding_window_max_ms", segment.sliding_window_max_ms),
    ):
        found += bound_problems(("segment", name), value, 0)
    if segment.sliding_window_max_ms < segment.sliding_window_ms:
        found.append(
            Problem(
                ("segment", "sliding_window_max_ms"),
                "shorter than the sliding window it bounds",
                expected=f"at least {_spell(segment.sliding_window_ms)}",
                found=_spell(segment.sliding_window_max_ms),
            )
        )
    if retention.after_ms is None:
        if retention.policy == "PURGE":
            found.append(
                Problem(("retention",), "PURGE needs a time", expected="the key after, as 2d", found="none")
            )
    else:
        found += bound_problems(("retention", "after_ms"), retention.after_ms, 0)
    found += bound_problems(("late", "merge_after_ms"), late.merge_after_ms, 0)
    found += bound_problems(("consumer_tasks_max",), cube.consumer_tasks_max, 1, CONSUMER_TASKS_MAX)
    return found


def _spell(duration_ms: int) -> str:
    return format_duration(duration_ms) if duration_ms >= 0 else f"{duration_ms} ms"
