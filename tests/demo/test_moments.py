"""Where events are is told from what coordinator and receivers say; the journal compares every answer."""

from __future__ import annotations

from typing import Any

from rtolap.demo.journal import DemoJournal
from rtolap.demo.moments import Moment, situation
from rtolap.protocols.coordinator.messages import QueueEntry, SegmentInfo
from rtolap.protocols.receiver.messages import CubeStats, LocalSegmentStats, ReceiverStats


def segment(name: str, state: str, version: int = 0) -> SegmentInfo:
    return SegmentInfo(cube="c", segment=name, start_ms=0, end_ms=1, state=state, version=version)


def local(name: str, version: int = 1, **more: Any) -> LocalSegmentStats:
    numbers = {"events": 1, "memory_rows": 0, "fragments": 0, "bytes": 0} | more
    return LocalSegmentStats(segment=name, version=version, state="ACTIVE", **numbers)


def receiver(*segments: LocalSegmentStats, cube: str = "c") -> ReceiverStats:
    stats = CubeStats(cube, "CONSUMING", "", True, (), segments)
    return ReceiverStats("r", "rs", "127.0.0.1:1", (stats,))


def queued(name: str, building: bool) -> QueueEntry:
    return QueueEntry(
        cube="c", segment=name, start_ms=0, end_ms=1, version=1, parts=1, events=1, building=building
    )


def test_nothing_is_nowhere() -> None:
    found = situation("c", [], [], [])
    assert (found.moments, found.pending, found.states) == (frozenset(), 0, {})


def test_what_the_receivers_do_is_told_with_its_reason() -> None:
    paused = CubeStats("c", "PAUSED", "103 segments wait for history", True)
    found = situation("c", [], [], [receiver(), ReceiverStats("q", "rs", "127.0.0.1:2", (paused,))])
    assert found.receivers == ("consuming", "paused: 103 segments wait for history")


def test_each_place_is_a_moment() -> None:
    assert situation("c", [], [], [receiver(local("a", memory_rows=3))]).moments == {Moment.MEMORY}
    assert situation("c", [], [], [receiver(local("a", fragments=1))]).moments == {Moment.FRAGMENTS}
    assert situation("c", [], [], [receiver(local("a", fragments=1), cube="other")]).moments == set()
    uploaded = situation("c", [segment("a", "REMOTE_PERSISTED")], [queued("a", False)], [])
    assert (uploaded.moments, uploaded.pending, uploaded.building) == ({Moment.UPLOADED}, 1, 0)
    building = situation("c", [segment("a", "REMOTE_PERSISTED")], [queued("a", True)], [])
    assert building.moments == {Moment.UPLOADED, Moment.BUILDING}
    assert situation("c", [segment("a", "READY", 1)], [], []).moments == {Moment.READY}
    assert situation("c", [segment("a", "READY", 2)], [], []).moments == {Moment.READY, Moment.LATE}


def test_a_late_delta_is_on_its_way_and_an_open_segment_is_not() -> None:
    late = receiver(local("a", version=2, memory_rows=1), local("b", memory_rows=1))
    found = situation("c", [segment("a", "READY", 1), segment("b", "ACTIVE")], [], [late, late])
    assert found.pending == 1


def note(journal: DemoJournal, answer: int, recount: int, offset: int = 1) -> None:
    journal.note(
        "q", {Moment.MEMORY, Moment.READY}, events=1, positions={0: offset},
        answer=((answer,),), recount=((recount,),),
    )  # fmt: skip


def test_the_first_answer_of_a_moment_and_every_wrong_one_are_kept() -> None:
    journal = DemoJournal()
    assert not journal.all_equal
    note(journal, 1, 1)
    note(journal, 2, 2)
    assert journal.all_equal
    assert [entry.moment for entry in journal.shown] == [Moment.MEMORY, Moment.READY]
    note(journal, 3, 4)
    assert not journal.all_equal
    assert len(journal.shown) == 4
    assert Moment.END in journal.missing(["q"])
    assert journal.missing(["q"])[0] is Moment.FRAGMENTS


def test_an_answer_that_goes_backwards_is_not_equal() -> None:
    journal = DemoJournal()
    note(journal, 1, 1, offset=5)
    note(journal, 1, 1, offset=4)
    assert (journal.asked, journal.equal) == (2, 1)


def test_each_moment_says_what_was_seen_and_answered_at_it() -> None:
    journal = DemoJournal()
    journal.observe({Moment.MEMORY, Moment.UPLOADED})
    journal.observe({Moment.MEMORY})
    note(journal, 1, 1)
    note(journal, 3, 4)
    found = {each.moment: each for each in journal.by_moment(["q", "other"])}
    assert list(found) == list(Moment)
    memory, uploaded = found[Moment.MEMORY], found[Moment.UPLOADED]
    assert (memory.seen_times, memory.queries, memory.asked, memory.equal) == (2, ("q",), 2, 1)
    assert memory.events == (1, 1)
    assert (uploaded.seen_times, uploaded.queries, uploaded.asked, uploaded.events) == (1, (), 0, None)
    assert found[Moment.END].seen_times == 0
