"""A job that is redefined: where it begins, and what it neither counts twice nor leaves out."""

from __future__ import annotations

import pytest
from rtolap.base.errors import DefinitionError, Refused
from rtolap.kafka.interfaces import LogRange
from rtolap.model.loader import LoaderSink
from rtolap.stored.loader.commit import CLOCKS_APART_MS_MAX
from rtolap.stored.loader.job import JobConfig, write_config
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.reset import given, going_on, going_on_of_all, left_labels_of_all
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.metastore.load_jobs import Series

from tests.support.loader.stepped_loader import World, load_all, sent_and_unanswered


def log_of(world: World) -> dict[int, LogRange]:
    return {number: LogRange(log.start, log.end) for number, log in enumerate(world.broker.logs("t"))}


def go_on(world: World, work: LoadJobRun, *, abandon: bool = False) -> None:
    work.ownership.release()
    log = log_of(world)

    def config(series: tuple[Series, ...]) -> str:
        plain = JobConfig(work.loader, going_on_of_all(series, log))
        return write_config(plain.leaving(left_labels_of_all(series, work.job)))

    world.jobs.define_again("j", config, abandon=abandon)


def retain(world: World, start: int, partition: int = 0) -> None:
    log = world.broker.logs("t")[partition]
    gone = sum(offset < start for offset in log.offsets)
    log.start = start
    del log.offsets[:gone], log.records[:gone]


def test_going_on_counts_nothing_twice_in_partitions_that_lost_nothing(world: World) -> None:
    world.create()
    world.produce(1, 2)
    world.produce(11, 12, partition=1)
    work = world.start()
    load_all(work)
    world.produce(3, 4, 5, 6)
    retain(world, 4)
    with pytest.raises(Stopped, match="--go-on") as stopped:
        load_all(work)
    assert stopped.value.cause is StopCause.OFFSETS_GONE
    world.produce(13, partition=1)
    go_on(world, work)
    world.produce(7, 8)
    work = world.start()
    load_all(work)
    world.clock.advance_ms(10_000)
    load_all(work)
    assert world.keys() == [1, 2, 5, 6, 7, 8, 11, 12, 13]


def test_going_on_reads_what_was_recorded_and_never_sent(world: World) -> None:
    world.create()
    world.produce(1, 2, 3, 4)
    work = world.start()
    load_all(work, rounds=1)
    work.source.step(0.0)  # recorded only
    go_on(world, work)
    load_all(world.start())
    assert world.keys() == [1, 2, 3, 4]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_going_on_reads_a_partition_that_is_new_from_its_beginning(world: World, start: str) -> None:
    world.create(start=start)
    work = world.start()
    world.broker.logs("t").append(type(world.broker.logs("t")[0])())
    world.produce(7, 8, partition=2)
    go_on(world, work)
    load_all(world.start())
    assert world.keys() == [7, 8]


def test_a_partition_that_comes_after_it_was_defined_is_read_from_its_beginning(world: World) -> None:
    world.create(start="latest")
    work = world.start()
    go_on(world, work)
    world.broker.logs("t").append(type(world.broker.logs("t")[0])())
    world.produce(7, 8, partition=2)
    load_all(world.start())
    assert world.keys() == [7, 8]


def test_going_on_is_as_the_definition_says_where_nothing_was_begun(world: World) -> None:
    world.create()
    assert going_on((), log_of(world)) is None


def test_a_loaded_batch_behind_one_that_is_not_leaves_no_right_place_to_go_on(world: World) -> None:
    world.create()
    world.produce(1, 2, 3, 4)
    work = world.start()
    work.source.step(0.0)
    work.source.step(0.0)
    work.settle_once(work.settler(), 0.0, max)
    assert world.keys() == [3, 4]
    with pytest.raises(Refused, match=r"0=0,1=0.*0=4,1=0"):
        go_on(world, work)


def test_another_topic_under_the_name_is_not_gone_on_with(world: World) -> None:
    world.create()
    world.produce(1, 2)
    work = world.start()
    load_all(work)
    world.broker.delete("t")
    world.broker.create("t", 2)
    with pytest.raises(Refused, match="another one"):
        go_on(world, work)


@pytest.mark.parametrize("at", [{0: 2}, {0: 2, 1: 0, 7: 9}])
def test_every_partition_has_to_be_named_and_no_other(world: World, at: dict[int, int]) -> None:
    with pytest.raises(DefinitionError):
        given(at, log_of(world))
    assert given({0: 2, 1: 0}, log_of(world)) == {0: 2, 1: 0}


def test_a_job_is_not_defined_anew_while_a_request_may_be_under_way(world: World) -> None:
    world.create(sink=LoaderSink(timeout_ms=60_000))
    world.produce(1, 2)
    work = world.start()
    work.source.step(0.0)
    sent_and_unanswered(world, work)  # it may come yet, though the lease is given back
    with pytest.raises(Refused, match="j_1_1"):
        go_on(world, work)
    load_all(world.start())
    assert world.keys() == [1, 2]
    assert world.jobs.get("j").incarnation == 1


def test_labels_of_the_incarnation_before_are_given_back_when_no_request_can_be_under_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rtolap.stored.loader.commit.LABELS_MAX", 2)
    world.create(sink=LoaderSink(timeout_ms=60_000))
    world.produce(1, 2, 3, 4, 5, 6)
    work = world.start()
    load_all(work)
    go_on(world, work)
    again = world.start()
    load_all(again)
    again.committer.run_once(world.clock.now_ms())
    assert set(world.sink.labels("d")) == {"j_1_1", "j_1_2", "j_1_3"}
    world.clock.advance_ms(60_000 + CLOCKS_APART_MS_MAX)
    again.ownership.renew()
    again.committer.run_once(world.clock.now_ms())
    assert world.sink.labels("d") == {}
