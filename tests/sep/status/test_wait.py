"""When all that was written before an instant is delivered: over rolls, moves of queues and dead servers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from rtolap.base.errors import NotFound, NotYet, Refused, Unavailable
from rtolap.sep.hbase.connection import Connection
from rtolap.sep.status.wait import advance, check_peer, due_logs, still_due, wait_delivered

from tests.support.sep.replication_looks import SERVERS, LookedAtCluster, log_name

FIRST, SECOND, THIRD = SERVERS


class Rolled:
    """Region servers that note who was requested to roll; those in `deaf` do not answer."""

    def __init__(self) -> None:
        self.servers: list[str] = []
        self.deaf: set[str] = set()

    def call(self, connection: Connection, method: str, *unused: object, **options: object) -> None:
        assert method == "RollWALWriter"
        host = connection.address.partition(":")[0]
        if host in self.deaf:
            raise Unavailable("no answer")
        self.servers.append(host)


@pytest.fixture
def rolled(monkeypatch: pytest.MonkeyPatch) -> Rolled:
    rolled = Rolled()
    monkeypatch.setattr(Connection, "call", lambda *args, **options: rolled.call(*args, **options))
    return rolled


@pytest.fixture
def cluster() -> LookedAtCluster:
    cluster = LookedAtCluster()
    cluster.add_peer("orders")
    cluster.queue(FIRST, "orders", {1000: 5, 2000: None})
    cluster.queue(SECOND, "orders", {1500: 7})
    cluster.queue(SECOND, f"orders-{THIRD}", {900: None})
    cluster.queue(FIRST, "other", {3000: None})
    return cluster


def test_what_was_written_before_an_instant_stands_in_the_logs_of_that_moment(
    cluster: LookedAtCluster,
) -> None:
    due = due_logs(cluster.znodes, "orders")
    assert set(due.logs) == {
        log_name(FIRST, 1000),
        log_name(FIRST, 2000),
        log_name(SECOND, 1500),
        log_name(THIRD, 900),
    }
    assert due.unrolled == (str(FIRST), str(SECOND))


def test_logs_that_were_begun_after_the_instant_are_not_waited_for(
    cluster: LookedAtCluster,
) -> None:
    due = due_logs(cluster.znodes, "orders", before_ms=1500)
    assert set(due.logs) == {log_name(FIRST, 1000), log_name(THIRD, 900)}
    assert due.unrolled == (str(FIRST),)
    assert due_logs(cluster.znodes, "orders", before_ms=900).logs == ()


def test_each_server_rolls_once_and_one_that_does_not_answer_again_until_it_is_gone(
    cluster: LookedAtCluster, rolled: Rolled
) -> None:
    rolled.deaf = {SECOND.host}
    due = advance(cluster.znodes, due_logs(cluster.znodes, "orders"), now_ms=2000)
    due = advance(cluster.znodes, due, now_ms=2000)
    assert (rolled.servers, due.unrolled) == ([FIRST.host], (str(SECOND),))
    cluster.forget(f"/hbase/rs/{SECOND}")
    assert advance(cluster.znodes, due, now_ms=2000).unrolled == ()
    assert rolled.servers == [FIRST.host]


def test_a_server_rolls_again_at_growing_distances_while_its_due_logs_stand(
    cluster: LookedAtCluster, rolled: Rolled
) -> None:
    """As HBase leaves logs without edits in a queue that its source has passed at once."""
    cluster.queue(FIRST, "orders", {2000: None})
    cluster.forget_queue(SECOND, "orders")
    cluster.forget_queue(SECOND, f"orders-{THIRD}")
    due = due_logs(cluster.znodes, "orders")
    logs: dict[int, int | None] = {2000: None}
    rolled_at_ms = []
    for now_ms in range(2000, 182_000, 500):
        before = len(rolled.servers)
        due = advance(cluster.znodes, due, now_ms=now_ms)
        if len(rolled.servers) > before:
            rolled_at_ms.append(now_ms)
            logs[now_ms] = None
            cluster.queue(FIRST, "orders", logs)
    assert due.logs == (log_name(FIRST, 2000),)
    distances_ms = [later - earlier for earlier, later in pairwise(rolled_at_ms)]
    assert distances_ms == sorted(distances_ms)
    assert rolled_at_ms[0] == 2000
    assert 5_000 <= distances_ms[0] <= 6_000
    assert len(rolled_at_ms) <= 8
    del logs[2000]
    cluster.queue(FIRST, "orders", logs)
    rolled.servers.clear()
    assert advance(cluster.znodes, due, now_ms=10**9).logs == ()
    assert advance(cluster.znodes, due, now_ms=10**9).unrolled == ()
    assert rolled.servers == []


def test_a_log_is_waited_for_in_whatever_queue_it_stands(cluster: LookedAtCluster, rolled: Rolled) -> None:
    due = due_logs(cluster.znodes, "orders")
    cluster.forget_queue(FIRST, "orders")
    cluster.queue(SECOND, f"orders-{FIRST}", {2000: 3})
    cluster.queue(SECOND, "orders", {4000: None})
    cluster.forget_queue(SECOND, f"orders-{THIRD}")
    due = still_due(cluster.znodes, due, 2000)
    assert due.logs == (log_name(FIRST, 2000),)
    cluster.forget_queue(SECOND, f"orders-{FIRST}")
    assert still_due(cluster.znodes, due, 2000).logs == ()


def test_the_wait_ends_with_the_last_log_and_not_before(cluster: LookedAtCluster, rolled: Rolled) -> None:
    steps = iter(
        [
            lambda: cluster.queue(FIRST, "orders", {2000: 8, 5000: None}),
            lambda: cluster.forget_queue(SECOND, f"orders-{THIRD}"),
            lambda: cluster.queue(FIRST, "orders", {5000: None}),
            lambda: cluster.queue(SECOND, "orders", {5001: 9}),
        ]
    )
    left: list[int] = []

    def look(due: Any) -> None:
        left.append(len(due.logs))
        next(steps, lambda: None)()

    due = due_logs(cluster.znodes, "orders")
    wait_delivered(cluster.znodes, due, timeout_s=60, poll_s=0, on_look=look)
    assert left == [4, 3, 2, 1, 0]


def test_a_wait_in_vain_names_what_is_left(cluster: LookedAtCluster, rolled: Rolled) -> None:
    due = due_logs(cluster.znodes, "orders")
    with pytest.raises(NotYet, match=r"expected within 0s; found 4 logs .* and 1 more; `rtolap sep status"):
        wait_delivered(cluster.znodes, due, timeout_s=0)


def test_a_peer_that_is_not_there_or_disabled_is_not_waited_for(cluster: LookedAtCluster) -> None:
    cluster.add_peer("paused", enabled=False)
    check_peer(cluster.master, "orders")
    with pytest.raises(NotFound, match="no peer x"):
        check_peer(cluster.master, "x")
    with pytest.raises(Refused, match="sep resume paused"):
        check_peer(cluster.master, "paused")
