"""Lines, holders and closed windows of a history, against a plain walk over its samples."""

from __future__ import annotations

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.draw.timeline import CLOSINGS_MAX, WindowClosing, timeline
from rtolap.draw.timeline_figure import held_by
from rtolap.protocols.watermark.messages import ApplicationHistory, HostTrace

from tests.support.watermarks.watermark_histories import (
    BEGAN_MS,
    SAMPLES,
    STALLED,
    UNIT,
    WORKING,
    stalled_history,
)

MINUTE_MS = 60_000


def test_who_held_is_told_with_when_and_how_far_behind() -> None:
    web, sessions = timeline(stalled_history()).panels
    assert [one.name for one in web.holders] == ["c", "b"]  # never seen, then the furthest; a never held
    unseen, stalled = web.holders
    assert (unseen.behind_max_ms, unseen.held, unseen.worst) == (None, SAMPLES, None)
    last = STALLED.stop - 1
    assert stalled.behind_max_ms == (last - STALLED.start + 2) * 1000
    assert (stalled.worst, stalled.held) == (last, SAMPLES)
    [unit] = sessions.holders
    assert (unit.name, unit.held) == (UNIT, len(WORKING))
    assert (unit.from_ms, unit.until_ms) == tuple(
        BEGAN_MS + at * 1000 for at in (WORKING.start, WORKING.stop - 1)
    )


def test_holders_weigh_what_the_watermark_was_behind_not_what_they_are() -> None:
    history = stalled_history()
    web = history.levels["web"]
    briefly = web.hosts[2].model_copy(update={"at": (0, 1, 2), "latest_ms": (None,) * 3})
    dead = HostTrace(host="d", at=(50, 51), latest_ms=(BEGAN_MS - 86_400_000,) * 2)
    levels = {"web": web.model_copy(update={"hosts": (briefly, dead, web.hosts[1])})}
    [panel] = timeline(history.model_copy(update={"levels": levels})).panels
    assert [(one.name, one.weight_ms) for one in panel.holders] == [
        ("b", 301_000),
        ("c", 2_000),
        ("d", 2_000),
    ]
    assert held_by(panel) == "held by b (5m1s) and 1 more host"


def test_the_time_of_holding_is_the_one_around_the_worst_moment() -> None:
    history = stalled_history()
    web = history.levels["web"]
    without = set(range(STALLED.stop, STALLED.stop + 20)) | {3}  # not among the furthest in these samples
    trace = web.hosts[1]
    kept = [at for at in trace.at if at not in without]
    cut = trace.model_copy(update={"at": kept, "latest_ms": [trace.latest_ms[at] for at in kept]})
    levels = {"web": web.model_copy(update={"hosts": (cut,)})}
    [held] = timeline(history.model_copy(update={"levels": levels})).panels[0].holders
    assert (held.from_ms, held.until_ms) == (BEGAN_MS + 4_000, BEGAN_MS + (STALLED.stop - 1) * 1000)


def test_a_window_closes_when_the_global_watermark_reaches_it_or_a_person_lets_it_go() -> None:
    history = stalled_history()
    found = timeline(history, window_ms=MINUTE_MS).closings
    expected = []
    ends = range(BEGAN_MS // MINUTE_MS * MINUTE_MS, BEGAN_MS + SAMPLES * 1000, MINUTE_MS)
    [approval] = history.approvals
    for end_ms in ends:
        if end_ms <= history.global_ms[0]:
            continue
        reached = [at for at, mark in zip(history.at_ms, history.global_ms, strict=True) if mark >= end_ms]
        if end_ms <= approval.until_ms and reached[0] > approval.at_ms:
            expected.append(WindowClosing(end_ms, approval.at_ms, "ann"))
        elif reached:
            expected.append(WindowClosing(end_ms, reached[0]))
    assert list(found) == expected
    assert {one.by for one in found} == {None, "ann"}


def test_levels_are_chosen_by_name() -> None:
    assert [panel.level for panel in timeline(stalled_history(), ["sessions"]).panels] == ["sessions"]
    with pytest.raises(DefinitionError, match="web, sessions"):
        timeline(stalled_history(), ["store"])


def test_a_history_without_samples_has_no_lines_and_no_windows() -> None:
    found = timeline(ApplicationHistory(application="logs", epoch=1, now_ms=1), window_ms=MINUTE_MS)
    assert (found.at_ms.size, found.panels, found.closings) == (0, (), ())


def test_what_is_unknown_is_no_line_and_no_window() -> None:
    history = stalled_history()
    unknown = {"global_ms": (None,) * SAMPLES}
    found = timeline(history.model_copy(update=unknown), window_ms=MINUTE_MS)
    assert np.isnan(found.global_ms).all()
    assert found.closings == ()


def test_windows_too_short_for_a_picture_are_refused() -> None:
    history = stalled_history()
    with pytest.raises(DefinitionError, match=str(CLOSINGS_MAX)):
        timeline(history, window_ms=10)


@pytest.mark.parametrize(
    "wrong",
    [
        {"global_ms": (1,)},
        {"at_ms": (BEGAN_MS,)},
    ],
)
def test_columns_that_do_not_fit_each_other_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(DefinitionError, match="does not fit"):
        timeline(stalled_history().model_copy(update=wrong))


@pytest.mark.parametrize("at", [(0,), (0, SAMPLES), (-1, 0)])
def test_a_trace_beyond_the_samples_is_refused(at: tuple[int, ...]) -> None:
    history = stalled_history()
    web = history.levels["web"]
    trace = web.hosts[0].model_copy(update={"at": at, "latest_ms": (1, 2)})
    levels = {"web": web.model_copy(update={"hosts": (trace,)})}
    with pytest.raises(DefinitionError, match="does not fit"):
        timeline(history.model_copy(update={"levels": levels}))
