"""Up to where the table can be read: known where an answer has said it, asked for elsewhere."""

from __future__ import annotations

import pytest
from rtolap.airflow.completeness import CaughtUp
from rtolap.protocols.loader.messages import LoaderStatus
from rtolap.protocols.stream_load.messages import LoadState
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.process import LoaderProcess
from rtolap.stored.loader.status import status_of

from tests.support.loader.stepped_loader import World, load_all


def asked_labels(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    plain = world.sink.state

    def state(database: str, label: str) -> LoadState:
        found.append(label)
        answer: LoadState = plain(database, label)
        return answer

    monkeypatch.setattr(world.sink, "state", state)
    return found


def status(world: World, work: LoadJobRun) -> LoaderStatus:
    return status_of(world.jobs.get("j"), world.records.all("j"), work.log(), LoaderProcess(work))


def test_what_is_committed_and_not_visible_yet_is_waited_for(world: World) -> None:
    world.create()
    world.sink.publishes_late = True
    world.produce(1, 2)
    work = world.start()
    load_all(work)
    caught_up = CaughtUp()
    work.committer.run_once(world.clock.now_ms())
    found = status(world, work)
    assert (found.loaded, found.visible, found.lag_records) == ({0: 2, 1: 0}, {0: 0, 1: 0}, 0)
    assert not caught_up.observe(found)
    world.sink.publish()
    work.committer.run_once(world.clock.now_ms())
    found = status(world, work)
    assert found.visible == found.loaded == {0: 2, 1: 0}
    assert caught_up.observe(found)


def test_one_that_was_found_committed_after_a_crash_is_waited_for_too(world: World) -> None:
    world.create()
    world.sink.publishes_late = True
    world.produce(1, 2)
    load_all(world.start())
    work = world.start()
    work.committer.run_once(world.clock.now_ms())
    assert status(world, work).visible == {0: 0, 1: 0}
    world.sink.publish()
    work.committer.run_once(world.clock.now_ms())
    assert status(world, work).visible == {0: 2, 1: 0}


def test_a_batch_that_was_answered_with_success_is_not_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    world.produce(1, 2, 3, 4)
    work = world.start()
    load_all(work)
    asked = asked_labels(world, monkeypatch)
    work.committer.run_once(world.clock.now_ms())
    assert work.visible.ends == {0: 4, 1: 0}
    assert asked == []
    again = world.start()
    asked.clear()
    again.committer.run_once(world.clock.now_ms())
    assert again.visible.ends == {0: 4, 1: 0}
    assert asked == ["j_1_1", "j_1_2"]
