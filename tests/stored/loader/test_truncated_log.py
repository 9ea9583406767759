"""A log that was cut and grew again: nothing that it lost is loaded unnoticed, nothing is missed."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import sqlalchemy as sa
from rtolap.base.errors import Refused, RtolapError, Unavailable
from rtolap.model.leader_epochs import EpochRange, LeaderEpochs
from rtolap.model.loader import LoaderBatch
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.metastore.schema import offsets_record

from tests.support.loader.stepped_loader import World, load_all, sent_and_unanswered, stopped_by
from tests.support.seeds import so_many


def loading(world: World, **changes: Any) -> LoadJobRun:
    """Four records are loaded."""
    world.create(**changes)
    world.produce(1, 2, 3, 4)
    work = world.start()
    load_all(work)
    assert world.keys() == [1, 2, 3, 4]
    return work


def read_on(work: LoadJobRun) -> None:
    for _ in range(5):
        work.source.step(0.0)


def cut(world: World, end: int, *keys: int) -> None:
    world.broker.cut("t", 0, end)
    world.produce(*keys)


def test_a_record_of_the_ledger_keeps_the_leader_epochs_of_what_was_read(world: World) -> None:
    work = loading(world)
    world.broker.elect("t", 0)
    world.produce(5, 6)
    load_all(work)
    (known,) = world.records.all("j")[-1].end_epochs.items()
    assert known == (0, LeaderEpochs((EpochRange(0, 0, 4), EpochRange(1, 4, 6))))


@pytest.mark.parametrize("policy", ["stop", "drop"])
@pytest.mark.parametrize("restarted", [True, False])
def test_records_that_are_loaded_and_lost_stop_it_by_name(world: World, restarted: bool, policy: str) -> None:
    work = loading(world, truncation=policy)
    cut(world, 3, *range(100, 110))
    if restarted:
        work = world.start()
    with pytest.raises(Stopped) as stopped:
        load_all(work)
    assert stopped.value.cause is StopCause.LOG_TRUNCATED
    assert "partition 0 diverges at offset 3, before" in str(stopped.value)
    assert "rtolap loader reset --at" in str(stopped.value)
    assert world.keys() == [1, 2, 3, 4]


def test_what_was_read_and_not_recorded_is_dropped_by_policy(world: World) -> None:
    work = loading(world, truncation="drop", batch=LoaderBatch(rows=4, interval_ms=1_000))
    world.produce(5, 6, 7)
    work.source.step(0.0)  # read, and waiting for a fourth
    cut(world, 5, 100, 101, 102, 103)
    load_all(work)
    world.clock.advance_ms(2_000)
    work.ownership.renew()
    load_all(work)
    assert world.keys() == [1, 2, 3, 4, 5, 100, 101, 102, 103]


def test_the_default_stops_even_where_nothing_was_recorded(world: World) -> None:
    work = loading(world, batch=LoaderBatch(rows=4, interval_ms=1_000))
    world.produce(5, 6, 7)
    work.source.step(0.0)
    cut(world, 5, *range(100, 110))
    assert stopped_by(lambda: load_all(work)) is StopCause.LOG_TRUNCATED
    assert world.keys() == [1, 2, 3, 4]


def test_batches_of_which_nothing_was_sent_are_taken_back_by_policy(world: World) -> None:
    work = loading(world, truncation="drop", parallel=4)
    world.produce(*range(5, 11))
    for _ in range(3):
        work.source.step(0.0)
    assert [record.sequence_id for record in world.records.all("j")][-3:] == [3, 4, 5]
    cut(world, 7, *range(100, 107))
    load_all(work, 60)
    world.clock.advance_ms(60_000)
    work.ownership.renew()
    load_all(work, 60)
    assert world.keys() == [*range(1, 8), *range(100, 107)]


def test_a_batch_that_was_sent_is_not_taken_back(world: World) -> None:
    work = loading(world, truncation="drop")
    world.produce(5, 6)
    work.source.step(0.0)
    sent_and_unanswered(world, work)
    cut(world, 5, *range(100, 110))
    with pytest.raises(Stopped) as stopped:
        read_on(work)
    assert stopped.value.cause is StopCause.LOG_TRUNCATED
    assert "batch 3 of j cannot be taken back" in str(stopped.value)


def test_a_batch_that_is_being_tried_is_waited_for(world: World) -> None:
    work = loading(world, truncation="drop", parallel=4)
    world.produce(5, 6)
    work.source.step(0.0)
    taken = work.window.take_batch()
    assert taken is not None
    cut(world, 5, *range(100, 105))
    with pytest.raises(Unavailable, match="being tried"):
        read_on(work)
    work.window.give_back(taken)
    load_all(work)
    assert world.keys() == [*range(1, 6), *range(100, 105)]


def test_an_earlier_process_left_a_range_that_the_log_has_lost(world: World) -> None:
    work = loading(world)
    world.produce(5, 6)
    work.source.step(0.0)  # recorded, never sent
    cut(world, 5, *range(100, 110))
    assert stopped_by(lambda: load_all(world.start())) is StopCause.LOG_TRUNCATED
    assert world.keys() == [1, 2, 3, 4]


def test_by_policy_such_a_range_is_taken_back_at_the_start(world: World) -> None:
    work = loading(world, truncation="drop")
    world.produce(5, 6)
    work.source.step(0.0)
    cut(world, 5, *range(100, 111))
    load_all(world.start())
    assert world.keys() == [*range(1, 6), *range(100, 111)]


def test_a_broker_that_does_not_answer_is_waited_for(world: World) -> None:
    work = loading(world)
    world.produce(5, 6)
    log = world.broker.logs("t")[0]
    known, log.epochs = log.epochs, [log.epochs[0]._replace(epoch=-1)]
    with pytest.raises(Unavailable):
        load_all(work)
    log.epochs = known
    load_all(work)
    assert world.keys() == [1, 2, 3, 4, 5, 6]


def test_an_older_row_without_epochs_learns_them(world: World) -> None:
    loading(world)
    with world.records._ledger._connection() as connection, connection.begin():
        connection.execute(sa.update(offsets_record).values(end_epochs=None))
    assert world.records.all("j")[-1].end_epochs == {}
    work = world.start()
    world.produce(5, 6)
    load_all(work)
    assert world.records.all("j")[-1].end_epochs[0].end == 6
    cut(world, 5, *range(100, 110))
    assert stopped_by(lambda: load_all(world.start())) is StopCause.LOG_TRUNCATED


def test_batches_that_were_sent_are_not_withdrawn_from_the_ledger(world: World) -> None:
    work = loading(world)
    lease = work.ownership.lease
    with pytest.raises(Refused, match="batch 2 of j"):
        world.records.withdraw(lease, 2)
    world.produce(5, 6)
    work.source.step(0.0)
    assert world.records.withdraw(lease, 3) == 1
    assert [record.sequence_id for record in world.records.all("j")][-1] == 2


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(60)))
def test_random_lives_load_what_the_log_holds_or_stop_by_name(world: World, seed: int) -> None:
    rng, number = random.Random(seed), 0
    parallel, rows = rng.choice((1, 3)), rng.choice((2, 5))
    world.create(truncation="drop", parallel=parallel, batch=LoaderBatch(rows=rows, interval_ms=1_000))
    work = world.start()
    settler = work.settler()
    ever: dict[tuple[int, int], list[int]] = {}
    stopped: Stopped | None = None
    for _ in range(50):
        partition = rng.randrange(2)
        action = rng.choice(("produce", "read", "read", "read", "settle", "cut", "elect", "crash", "time"))
        try:
            match action:
                case "produce":
                    for _ in range(rng.randrange(1, 6)):
                        number += 1
                        offset = world.broker.logs("t")[partition].end
                        ever.setdefault((partition, offset), []).append(number)
                        world.produce(number, partition=partition)
                case "read":
                    work.source.step(0.0)
                case "settle":
                    work.settle_once(settler)
                case "cut":
                    end = world.broker.logs("t")[partition].end
                    world.broker.cut("t", partition, rng.randrange(max(0, end - 3), end + 1))
                case "elect":
                    world.broker.elect("t", partition)
                case "crash":
                    work = world.start()
                    settler = work.settler()
                case "time":
                    world.clock.advance_ms(1_001)
                    work.ownership.renew()
        except Stopped as error:
            stopped = error
            break
        except Unavailable:
            continue
    try:
        work = world.start() if stopped is None else work
        for _ in range(200 if stopped is None else 0):
            world.clock.advance_ms(1_001)
            work.ownership.renew()
            load_all(work, 1)
    except Stopped as error:
        stopped = error
    except Unavailable as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    held = {json.loads(record.value or b"")["k"] for log in world.broker.logs("t") for record in log.records}
    loaded = world.keys()
    assert len(loaded) == len(set(loaded)), f"seed {seed}: loaded twice"
    if stopped is None:
        lost = sorted(set(loaded) - held)
        assert sorted(held - set(loaded)) == [], f"seed {seed}: not loaded"
        assert not lost, f"seed {seed}: {lost} are loaded, the log has lost them, and nobody was told"
        return
    assert stopped.cause in (StopCause.LOG_TRUNCATED, StopCause.OFFSETS_BEYOND), f"seed {seed}: {stopped}"
    assert isinstance(stopped, RtolapError)
