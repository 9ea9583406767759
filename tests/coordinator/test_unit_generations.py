"""A unit belongs to the newest of its owners: what others say of it is void, over leaders too."""

from __future__ import annotations

from typing import Any

import pytest
from rtolap.base.errors import Refused
from rtolap.watermark_client.client import WatermarkClient, unfinished

from tests.support.cubes.coordinator_harness import TOKEN, Cluster
from tests.support.watermarks.application_reports import (
    NAME,
    Reporter,
    counters,
    declared,
    now,
    registered,
    takeover,
)

UNIT = "sessions/job/0"


def unit(generation: int, oldest_work_ms: int | None, **more: Any) -> dict[str, Any]:
    return {
        "level": "sessions",
        "processor": "job",
        "generation": generation,
        "oldest_work_ms": oldest_work_ms,
        **more,
    }


def output_ms(cluster: Cluster) -> int | None:
    cluster.coordinator.applications.tick()
    return cluster.client.application_watermarks(NAME).levels["sessions"].output_ms


def two_owners(cluster: Cluster) -> tuple[Reporter, Reporter, int]:
    """A first owner, who was stopped, and his successor with old work; the source is far beyond that."""
    first = declared(cluster)
    registered(cluster, "a")
    second = Reporter(cluster, "c2")
    work_ms = now(cluster, 60_000)
    first.send(units=[unit(1, work_ms)])
    second.send(units=[unit(2, work_ms)])
    second.progress(0, a=now(cluster))
    assert output_ms(cluster) == work_ms
    return first, second, work_ms


def test_a_stopped_owner_that_goes_on_finishes_nothing_of_its_successor(cluster: Cluster) -> None:
    first, second, work_ms = two_owners(cluster)
    answer = first.send(units=[unit(1, None)])
    why = "generation 1 is over, the unit's owner is of generation 2"
    assert answer["refused"] == [{"what": UNIT, "why": why}]
    assert output_ms(cluster) == work_ms
    assert counters(cluster)["stale_units"] == 1
    second.send(units=[unit(2, None)])
    assert output_ms(cluster) == now(cluster)


def test_a_stopped_owner_cannot_leave_in_place_of_its_successor(cluster: Cluster) -> None:
    first, _, work_ms = two_owners(cluster)
    assert first.send(units=[unit(1, None, left=True)])["refused"]
    assert output_ms(cluster) == work_ms
    assert cluster.client.application(NAME).units == 1


def test_the_next_leader_knows_the_successor_before_it_has_heard_it(cluster: Cluster) -> None:
    first, second, work_ms = two_owners(cluster)
    takeover(cluster)
    first.progress(0, a=now(cluster))
    assert first.send(units=[unit(1, None)])["refused"]
    assert output_ms(cluster) == work_ms, "the successor is awaited"
    second.send(units=[unit(2, None)])
    assert output_ms(cluster) == now(cluster)


def test_an_older_owner_after_the_newest_has_left_only_holds(cluster: Cluster) -> None:
    first, second, _ = two_owners(cluster)
    second.send(units=[unit(2, None, left=True)])
    reached_ms = output_ms(cluster)
    assert reached_ms == now(cluster)
    assert not first.send(units=[unit(1, now(cluster, 60_000))])["refused"]
    assert output_ms(cluster) == reached_ms


def client(cluster: Cluster, **more: Any) -> WatermarkClient:
    return WatermarkClient(
        ["http://testserver"], TOKEN, NAME, every_s=3600, transport=cluster.http._transport, **more
    )


@pytest.mark.parametrize(
    ("level", "processor", "generation", "said"),
    [
        ("sesions", "job", 3, "no such level in application logs; expected one of sessions, store, web"),
        ("sessions", "job", 1, "generation 1 is over"),
        ("sessions", "", 3, "1 to 200 characters"),
    ],
)
def test_work_that_the_server_refuses_is_not_begun(
    cluster: Cluster, level: str, processor: str, generation: int, said: str
) -> None:
    two_owners(cluster)
    with client(cluster) as late:
        work = unfinished(late, level, processor, oldest_work_ms=now(cluster), generation=generation)
        with pytest.raises(Refused, match=said), work:
            pytest.fail("it has begun")


def test_who_repeats_a_batch_because_its_answer_was_lost_is_told_again_what_was_refused(
    cluster: Cluster,
) -> None:
    first, _, _ = two_owners(cluster)
    refused = first.send(units=[unit(1, None)])["refused"]
    assert refused
    assert first.post(units=[unit(1, None)])["refused"] == refused
    assert first.send()["refused"] == []
    assert first.post()["refused"] == [], "of an earlier batch nothing is told"


def test_a_process_with_the_name_of_a_former_one_is_heard_at_once(cluster: Cluster) -> None:
    """The server still knows the session of the former one, with all the batches that it took."""
    reporter = declared(cluster)
    registered(cluster, "a")
    reporter.progress(0, a=now(cluster))
    with client(cluster, client_id="nightly", clock=cluster.clock) as former:
        for _ in range(5):
            former.flush()
    cluster.clock.advance_ms(2_000)
    work_ms = now(cluster, 60_000)
    with client(cluster, client_id="nightly", clock=cluster.clock) as late:
        with unfinished(late, "sessions", "job", oldest_work_ms=work_ms, generation=1):
            assert output_ms(cluster) == work_ms
        late.flush()
    assert "repeated_batches" not in counters(cluster)
    assert output_ms(cluster) == now(cluster, 2_000)


def test_a_generation_below_zero_is_refused_and_counted(cluster: Cluster) -> None:
    first, _, work_ms = two_owners(cluster)
    assert "generations count from 0" in first.send(units=[unit(-1, None)])["refused"][0]["why"]
    assert counters(cluster)["unknown_units"] == 1
    assert output_ms(cluster) == work_ms
