"""A partition that changes hands, in every order that receivers may notice it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import StaleSnapshot
from rtolap.cubes.receiver.answers.query_service import NotReady, answer
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from tests.support.cubes.builders import START_MS, random_event, small_schema
from tests.support.cubes.cluster import Cluster
from tests.support.cubes.stepped_receiver import Receiver
from tests.support.query.asking import Asker


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = ReceiverSettings(disk_free_bytes_min=0, checkpoint_interval_s=3600.0, idle_after_s=3.0)
    one = Cluster(small_schema(), tmp_path, settings, start_ms=START_MS)
    rng = random.Random(4)
    for number in range(200):
        one.produce(number % 4, *random_event(rng, START_MS + 10 * number))
    for receiver in one.receivers:
        catch_up(receiver)
    yield one
    one.close()


def catch_up(receiver: Receiver) -> None:
    receiver.look()
    receiver.consume_all()


def assign(cluster: Cluster, **assignment: tuple[int, ...]) -> None:
    cluster.metadata.update_control(
        cluster.cube,
        lambda control: msgspec.structs.replace(
            control, assignment=assignment, assignment_epoch=control.assignment_epoch + 1
        ),
    )


def leader(replica_set: str, cluster: Cluster) -> Receiver:
    return next(r for r in cluster.receivers if r.name == f"{replica_set}-0")


def exact(cluster: Cluster) -> bool:
    """Return whether all events are answered for, each once; False while somebody has to catch up first."""
    asker = Asker(cluster)
    try:
        found = asker.ask(lambda replica_set: leader(replica_set, cluster))
        if found is None:
            return False
        assert found.positions == {part: len(events) for part, events in cluster.log.items()}
        assert found.answer == asker.expected(found)
        return True
    finally:
        asker.close()


def test_nobody_answers_before_both_owners_know(cluster: Cluster) -> None:
    left, right = leader("left", cluster), leader("right", cluster)
    assert exact(cluster)
    assign(cluster, left=(0,), right=(1, 2, 3))
    assert not exact(cluster), "neither knows"
    catch_up(right)
    assert not exact(cluster), "the new owner has it, the old one has not let go"
    catch_up(left)
    assert not exact(cluster), "the old owner has yet to take it out of its tables"
    while left.realign():
        pass
    assert exact(cluster)


def test_the_old_owner_alone_is_no_answer(cluster: Cluster) -> None:
    left, right = leader("left", cluster), leader("right", cluster)
    assign(cluster, left=(0,), right=(1, 2, 3))
    catch_up(left)
    while left.realign():
        pass
    assert not exact(cluster), "the new owner does not know"
    catch_up(right)
    assert exact(cluster)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_given_away_and_comes_back_is_counted_once(cluster: Cluster, restarted: bool) -> None:
    """Its events still lie in tables that were to be read again when it is reassigned."""
    left, right = leader("left", cluster), leader("right", cluster)
    assign(cluster, left=(0,), right=(1, 2, 3))
    catch_up(left)
    catch_up(right)
    if restarted:
        left.checkpoint()
        left.crash()
        catch_up(left)
    assign(cluster, left=(0, 2), right=(1, 3))
    for receiver in (left, right):
        catch_up(receiver)
    assert not exact(cluster)
    for receiver in (left, right):
        while receiver.realign():
            pass
        catch_up(receiver)
    assert exact(cluster)
    assert sum(seen.events for seen in left.core.progress.counters.values()) == sum(
        event is not None for part in (0, 2) for event in cluster.log[part]
    )


def test_a_replica_set_that_is_left_out_holds_nothing_any_more(cluster: Cluster) -> None:
    left, right = leader("left", cluster), leader("right", cluster)
    assign(cluster, right=(0, 1, 2, 3))
    catch_up(left)
    assert not left.core.state.segments
    assert not left.core.state.positions
    catch_up(right)
    assert exact(cluster)


def test_who_is_behind_waits_and_who_is_ahead_asks_for_a_new_snapshot(cluster: Cluster) -> None:
    left = leader("left", cluster)

    def ask(epoch: int | None) -> object:
        query = PartialQuery(cluster.cube, (), ("__rows",), HistorySnapshot(assignment_epoch=epoch))
        core = left.core
        return answer(
            cluster.schema,
            core.state,
            query,
            owned=core.owned,
            receiver_id=left.name,
            progress=core.progress,
        )

    ask(1)
    with pytest.raises(NotReady, match="does not follow the assignment yet"):
        ask(2)
    assign(cluster, left=(0, 2), right=(1, 3))
    catch_up(left)
    ask(2)
    ask(None)
    with pytest.raises(StaleSnapshot, match="the assignment has changed"):
        ask(1)
