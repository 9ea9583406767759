"""A topic that is deleted and recreated under its name: nothing of it is read by offsets of the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rtolap.base.errors import Refused, Unavailable
from rtolap.kafka.interfaces import LogRange
from rtolap.protocols.loader.messages import LoaderStatus
from rtolap.stored.loader.job import JobConfig, write_config
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.process import LoaderProcess
from rtolap.stored.loader.reset import going_on
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.loader.status import status_of

from tests.support.loader.stepped_loader import (
    World,
    gone_after_a_while,
    load_all,
    sent_and_unanswered,
    stopped_by,
)


def recreate(world: World, *keys: int) -> None:
    world.broker.delete("t")
    world.broker.create("t", 2)
    world.produce(*keys)


def stop(act: Callable[[], object]) -> Stopped:
    with pytest.raises(Stopped) as stopped:
        act()
    return stopped.value


def status(world: World, work: LoadJobRun) -> LoaderStatus:
    return status_of(world.jobs.get("j"), world.records.all("j"), work.log(), LoaderProcess(work))


def loaded_and_recreated(world: World) -> LoadJobRun:
    """A loader in the middle of its work; the new topic is filled beyond the old one's end."""
    world.create()
    world.produce(1, 2)
    work = world.start()
    load_all(work)
    recreate(world, *range(100, 106))
    return work


def test_a_running_loader_stops_before_it_records_a_batch_of_the_new_topic(world: World) -> None:
    work = loaded_and_recreated(world)
    stopped = stop(lambda: load_all(work))
    assert stopped.cause is StopCause.TOPIC_RECREATED
    assert all(word in str(stopped) for word in ("id-1", "id-2", "rtolap loader reset"))
    assert world.keys() == [1, 2]
    assert world.records.all("j")[-1].end_offsets == {0: 2, 1: 0}


def test_a_loader_that_starts_stops_too_and_again_and_again(world: World) -> None:
    loaded_and_recreated(world)
    for _ in range(2):
        work = world.start()
        assert stopped_by(lambda work=work: load_all(work)) is StopCause.TOPIC_RECREATED
    assert world.keys() == [1, 2]


def test_nothing_of_the_new_topic_counts_as_loaded(world: World) -> None:
    work = loaded_and_recreated(world)
    found = status(world, work)
    assert (found.topic_id, found.log_topic_id) == ("id-1", "id-2")
    assert (found.loaded, found.lag_records) == ({}, 6)
    assert work.log_ends() is None  # a level of an application waits


def test_the_lag_of_a_log_that_ends_before_what_is_loaded_is_all_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.broker, "topic_id", lambda topic: "")
    world.create()
    world.produce(1, 2, 3)
    work = world.start()
    load_all(work)
    world.clock.advance_ms(60_000)
    load_all(work)
    recreate(world, 7, 8)
    assert status(world, work).lag_records == 2


def test_reset_loads_the_new_topic_from_its_beginning(world: World) -> None:
    work = loaded_and_recreated(world)
    work.ownership.release()
    world.jobs.define_again("j", lambda _: write_config(JobConfig(work.loader)))
    again = world.start()
    load_all(again)
    assert world.keys() == [1, 2, *range(100, 106)]
    assert status(world, again).lag_records == 0
    assert world.records.all("j")[-1].topic_id == "id-2"


def test_reset_to_offsets_of_a_topic_that_is_recreated_before_the_start_is_not_followed(world: World) -> None:
    work = loaded_and_recreated(world)
    work.ownership.release()
    config = JobConfig(work.loader, {0: 4, 1: 0}, start_topic_id="id-2")
    world.jobs.define_again("j", lambda _: write_config(config))
    recreate(world, *range(200, 208))
    assert stopped_by(lambda: load_all(world.start())) is StopCause.TOPIC_RECREATED
    assert world.keys() == [1, 2]


def test_the_new_topic_is_not_gone_on_with_however_long_it_is(world: World) -> None:
    loaded_and_recreated(world)
    log = {0: LogRange(0, 6), 1: LogRange(0, 0)}
    with pytest.raises(Refused, match="recreated"):
        going_on(world.records.all("j"), log, topic_id="id-2")
    assert going_on(world.records.all("j"), log, topic_id="id-1") == {0: 2, 1: 0}


def test_a_recorded_range_is_not_read_from_the_new_topic(world: World) -> None:
    world.create()
    world.produce(1, 2)
    world.start().source.step(0.0)  # recorded, never sent
    recreate(world, *range(100, 106))
    work = world.start()
    assert stopped_by(lambda: work.settle_once(work.settler())) is StopCause.TOPIC_RECREATED
    assert world.keys() == []


def test_what_was_sent_before_is_settled_by_its_label_first(world: World) -> None:
    world.create()
    world.produce(1, 2)
    work = world.start()
    work.source.step(0.0)
    load = world.sink.load

    def answer_lost(*args: object, **options: object) -> None:
        load(*args, **options)
        raise Unavailable("no answer")

    world.sink.load = answer_lost
    work.settle_once(work.settler())
    del world.sink.load
    recreate(world, *range(100, 106))
    again = world.start()
    again.source.step(0.0)  # stops nothing yet
    again.settle_once(again.settler())
    assert world.records.all("j")[-1].loaded
    assert stopped_by(lambda: load_all(again)) is StopCause.TOPIC_RECREATED
    assert world.keys() == [1, 2]


def test_a_batch_waits_while_the_topic_is_missing_and_then_stops(world: World) -> None:
    world.create()
    world.produce(1, 2)
    work = world.start()
    polled = work.source._consumer.poll

    def poll_and_lose(*args: object, **options: object) -> object:
        batch = polled(*args, **options)
        world.broker.delete("t")
        return batch

    work.source._consumer.poll = poll_and_lose  # type: ignore[method-assign]
    gone_after_a_while(world, lambda: work.source.step(0.0))


def test_records_of_an_older_ledger_take_the_id_of_the_topic_that_is_there(world: World) -> None:
    world.create()
    world.produce(1, 2)
    work = world.start()
    insert = work.source._records.insert

    def without_id(*args: object, **options: object) -> object:
        return insert(*args, **{**options, "topic_id": None})

    work.source._records.insert = without_id  # type: ignore[method-assign]
    load_all(work)
    del work.source._records.insert
    assert world.records.all("j")[-1].topic_id is None
    again = world.start()
    load_all(again)
    world.produce(3, 4)
    load_all(again)
    assert world.keys() == [1, 2, 3, 4]
    assert world.records.all("j")[-1].topic_id == "id-1"
    recreate(world, *range(100, 110))
    assert stopped_by(lambda: load_all(again)) is StopCause.TOPIC_RECREATED


def test_an_unanswered_batch_is_not_sent_again_out_of_the_new_topic(world: World) -> None:
    world.create()
    world.produce(1, 2)
    work = world.start()
    work.source.step(0.0)
    sent_and_unanswered(world, work)
    recreate(world, 1, 2, 3)
    again = world.start()
    assert stopped_by(lambda: again.settle_once(again.settler())) is StopCause.TOPIC_RECREATED
    assert world.keys() == []
