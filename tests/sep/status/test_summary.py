"""Peers in one row, rows for people, gauges for Prometheus, and looks kept in a file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import Corrupted, DefinitionError, NotFound
from rtolap.base.metrics import Metrics
from rtolap.sep.status import tables
from rtolap.sep.status.history import ReplicationLook, append_look, lag_by_peer, read_looks
from rtolap.sep.status.metrics import ReplicationMetrics
from rtolap.sep.status.model import NO_SINKS, NOTHING, PeerStatus, QueueStatus, ReplicationStatus
from rtolap.sep.status.summary import Spread, summarize

SECOND_MS = 1000


def _queue(
    server: str,
    lag_ms: int | None,
    remaining: int | None,
    *,
    peer: str = "orders",
    queue: str = "",
    **more: object,
) -> QueueStatus:
    row = QueueStatus(
        peer=peer,
        server=server,
        queue=queue or peer,
        logs=2,
        lag_ms=lag_ms,
        further_bytes=None if remaining is None else 0,
        log_bytes=remaining,
        position_bytes=0,
    )
    return msgspec.structs.replace(row, **more)


def _status(at_ms: int, *queues: QueueStatus) -> ReplicationStatus:
    peers = sorted({row.peer for row in queues})
    return ReplicationStatus(
        at_ms=at_ms,
        cluster="zk:2181:/hbase",
        servers=3,
        peers=tuple(PeerStatus(peer=peer, enabled=True, sinks=2) for peer in peers),
        queues=queues,
    )


def test_a_peer_is_summed_up_by_its_worst_its_median_and_the_sum() -> None:
    status = _status(
        0,
        _queue("a", 10, 100),
        _queue("b", 4000, 900, reason=NO_SINKS),
        _queue("c", 30, 200, queue="orders-z,1,2", recovered_from=("z,1,2",)),
        _queue("a", 0, 5, peer="near", reason=NOTHING, logs=1),
    )
    orders, near = summarize(status)
    assert (orders.lag_ms, orders.remaining_bytes) == (Spread(4000, 30, 4040), Spread(900, 200, 1200))
    assert orders.logs == Spread(2, 2, 6)
    assert (orders.servers, orders.queues, orders.recovered_queues) == (3, 3, 1)
    assert (orders.worst_server, orders.reasons) == ("b", {NO_SINKS: 1})
    assert (orders.lag_trend, orders.catch_up_ms) == (None, None)
    assert (near.remaining_bytes, near.worst_server, near.catch_up_ms) == (Spread(0, 0, 0), None, 0)


@pytest.mark.parametrize(
    ("before", "after", "catch_up_ms", "trend"),
    [
        ((5000, 1000), (4000, 800), 8000, "shrinks by 100 B/s"),
        ((5000, 800), (4000, 1000), None, "grows by 100 B/s"),
        ((5000, None), (4000, None), 8000, "shrinks by 500ms/s"),
        ((4000, None), (6000, None), None, "grows by 1s/s"),
        ((4000, 5), (4000, 5), None, "steady"),
    ],
)
def test_trends_and_the_time_to_catch_up_come_from_two_looks(
    before: tuple[int, int | None],
    after: tuple[int, int | None],
    catch_up_ms: int | None,
    trend: str,
) -> None:
    earlier, now = _status(0, _queue("a", *before)), _status(2 * SECOND_MS, _queue("a", *after))
    (row,) = summarize(now, earlier)
    assert row.catch_up_ms == catch_up_ms
    assert tables.trend(row) == trend


def test_queues_are_sorted_and_filtered() -> None:
    rows = [
        _queue("b1", 10, 100),
        _queue("a2", 4000, 900),
        _queue("b3", 30, 9, recovered_from=("z,1,2",)),
        _queue("a4", None, None),
    ]
    servers = {
        order: "".join(row.server[1] for row in tables.choose(rows, order=order)) for order in tables.ORDERS
    }
    assert servers["lag"] == "2314"
    assert servers["remaining"] == "2134"
    assert servers["server"] == "2413"
    assert [row.server for row in tables.choose(rows, server="b", behind_ms=20)] == ["b3"]
    assert [row.server for row in tables.choose(rows, recovered=True)] == ["b3"]
    with pytest.raises(DefinitionError, match="lag, remaining"):
        tables.choose(rows, order="colour")


def test_rows_have_units_and_say_what_is_not_known() -> None:
    row = _queue(
        "a",
        61_234,
        2_500_000,
        last_shipped_ms=1_700_000_000_000,
        last_shipped_age_ms=12,
        position_bytes=1_000_000,
    )
    shown = dict(zip(tables.QUEUE_COLUMNS, tables.queue_row(row), strict=True))
    assert (shown["progress"], shown["lag"], shown["further logs"]) == ("40%", "1m1s", "0 B")
    assert shown["last shipped"] == "2023-11-14 22:13:20Z"
    open_log = msgspec.structs.replace(row, log_bytes=0)
    assert tables.progress(open_log) == "976.6 KiB of ?"
    (summary,) = summarize(_status(0, _queue("a", None, None)))
    assert tables.summary_row(summary)[5:11] == ("2 / 2 / 2", None, None, None, None, None)


def test_gauges_show_the_last_look_and_nothing_that_is_gone() -> None:
    metrics = Metrics("replication")
    gauges = ReplicationMetrics(metrics)
    assert b"queue_lag" not in metrics.render()[0]
    for status in (_status(0, _queue("formerly", 9, 9)), _status(0, _queue("a", 4000, 70))):
        gauges.show(status, summarize(status))
    page = metrics.render()[0].decode()
    labels = '{peer="orders",queue="orders",server="a"}'
    assert f"rtolap_replication_queue_lag_seconds{labels} 4.0" in page
    assert f"rtolap_replication_queue_remaining_bytes{labels} 70.0" in page
    assert 'rtolap_replication_peer_sinks{peer="orders"} 2.0' in page
    assert "formerly" not in page


def test_looks_are_kept_in_a_file_and_read_as_lines_of_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "looks"
    for at_ms, lag_ms in ((1000, 5), (2000, None), (3000, 7)):
        status = _status(at_ms, _queue("a", lag_ms, 1), _queue("b", lag_ms and 1, 1))
        append_look(path, ReplicationLook(at_ms, status.cluster, tuple(summarize(status))))
    with path.open("ab") as file:
        file.write(b'{"at_ms": 40')  # is being written
    (line,) = lag_by_peer(read_looks(path))
    assert (line.peer, line.at_ms) == ("orders", (1000, 2000, 3000))
    assert (line.worst_ms, line.median_ms) == ((5, None, 7), (3, None, 4))
    with pytest.raises(NotFound, match="peer x"):
        lag_by_peer(read_looks(path), ["x"])
    with pytest.raises(NotFound, match="--record"):
        read_looks(tmp_path / "none")
    path.write_bytes(b"{}\n")
    with pytest.raises(Corrupted, match="line 1"):
        read_looks(path)
