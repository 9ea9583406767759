"""A new owner that has to wait for history reads on to what was promised: to closed vectors and to positions
that were answered before. Beyond them it reads nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerState

from tests.support.cubes.builders import START_MS, WINDOW_MS, random_event, small_schema
from tests.support.cubes.cluster import Cluster
from tests.support.cubes.stepped_receiver import Receiver
from tests.support.query.asking import Asker
from tests.support.seeds import so_many

UNBUILT_MAX = 3
SEGMENTS = 8
BATCH_RECORDS = 10


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = ReceiverSettings(
        disk_free_bytes_min=0,
        checkpoint_interval_s=3600.0,
        idle_after_s=3.0,
        unbuilt_segments_max=UNBUILT_MAX,
        batch_records_max=BATCH_RECORDS,
    )
    one = Cluster(small_schema(), tmp_path, settings, start_ms=START_MS)
    yield one
    one.close()


def _produce(cluster: Cluster, random_: random.Random, segments: int) -> None:
    for _ in range(segments):
        for number in range(60):
            cluster.produce(number % 4, *random_event(random_, cluster.clock.now_ms()))
        cluster.clock.advance_ms(WINDOW_MS)


def _consume(cluster: Cluster, receiver: Receiver) -> None:
    """Limits are looked at once a second: a batch a second is none that they have not seen."""
    cluster.clock.advance_ms(1_100)
    while receiver.consume():
        cluster.clock.advance_ms(1_100)


def _turn(cluster: Cluster) -> None:
    for receiver in cluster.receivers:
        receiver.look()
        _consume(cluster, receiver)
        receiver.look()
        if receiver.leading:
            receiver.close_due()
        receiver.look()
        _consume(cluster, receiver)
        while receiver.realign():
            pass


def _settle(cluster: Cluster) -> None:
    for _ in range(SEGMENTS):
        _turn(cluster)


def _assign(cluster: Cluster, **assignment: tuple[int, ...]) -> None:
    cluster.metadata.update_control(
        cluster.cube,
        lambda control: msgspec.structs.replace(
            control, assignment=assignment, assignment_epoch=control.assignment_epoch + 1
        ),
    )


def _leader(cluster: Cluster, replica_set: str) -> Receiver:
    return next(r for r in cluster.receivers if r.name == f"{replica_set}-0")


def _closed_and_unbuilt(cluster: Cluster, random_: random.Random) -> None:
    """More segments are closed than may wait for history, and more events have come since."""
    _produce(cluster, random_, SEGMENTS)
    for receiver in cluster.receivers:
        receiver.look()
        receiver.consume_all()  # as time stands still, nothing is closed meanwhile
    _settle(cluster)
    assert sum(bool(record.target) for record in cluster.records().values()) > UNBUILT_MAX


@pytest.mark.parametrize("seed", range(so_many(6, 20)))
def test_what_was_answered_before_a_move_is_answered_after_it(cluster: Cluster, seed: int) -> None:
    random_ = random.Random(seed)
    _closed_and_unbuilt(cluster, random_)
    asker = Asker(cluster)
    try:
        asker.look()
        before = asker.ask(lambda name: _leader(cluster, name))
        assert before is not None
        parts = list(cluster.log)
        random_.shuffle(parts)
        cut = random_.randrange(len(parts) + 1)
        sets = random_.sample(("left", "right", "spare"), 2)
        _assign(
            cluster,
            **{n: tuple(sorted(p)) for n, p in zip(sets, (parts[:cut], parts[cut:]), strict=True) if p},
        )
        for _ in range(4):
            _turn(cluster)
            asker.look()
            asker.ask(lambda name: _leader(cluster, name))
        _turn(cluster)
        asker.look()
        found = asker.ask(lambda name: _leader(cluster, name))
        assert found is not None, [receiver.describe() for receiver in cluster.receivers]
        assert all(found.positions[part] >= at for part, at in before.positions.items())
        assert found.answer == asker.expected(found)
    finally:
        asker.close()


def test_a_paused_owner_reads_no_further_than_what_was_promised(cluster: Cluster) -> None:
    _closed_and_unbuilt(cluster, random.Random(1))
    promised = dict.fromkeys(cluster.log, 0)
    for record in cluster.records().values():
        for part, at in record.target.items():
            promised[part] = max(at, promised[part])
    _produce(cluster, random.Random(2), 2)
    _assign(cluster, spare=tuple(cluster.log))
    spare = _leader(cluster, "spare")
    for _ in range(4):
        _turn(cluster)
    assert spare.core.consumer_state is ConsumerState.PAUSED
    assert "wait for history" in spare.core.reason
    for part, at in spare.core.state.positions.items():
        assert promised[part] <= at < promised[part] + BATCH_RECORDS
        assert at < len(cluster.log[part])


def test_closed_segments_whose_events_lie_among_others_are_uploaded_by_a_paused_owner(
    cluster: Cluster,
) -> None:
    """Else nothing is ever built, and the pause never ends."""
    _closed_and_unbuilt(cluster, random.Random(3))
    _assign(cluster, spare=tuple(cluster.log))
    spare = _leader(cluster, "spare")
    uploaded = 0
    for _ in range(4):
        _turn(cluster)
        while spare.upload():
            spare.look()
            uploaded += 1
    closed = [record for record in cluster.records().values() if record.target]
    assert uploaded == len(closed) > UNBUILT_MAX
    assert all(record.parts for record in closed)
