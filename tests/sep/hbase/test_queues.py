"""Ids, positions and listings of queues, in the forms that HBase 1 and 2 have written."""

from __future__ import annotations

import pytest
from rtolap.base.errors import Corrupted
from rtolap.metadata.store import Create
from rtolap.sep.hbase.queues import QueuedLog, QueueId, parse_position, read_queues, read_stable_queues
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName

from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

FIRST = ServerName("ip-10-46-221-101.ec2.internal", 52170, 1364333181125)
SECOND = ServerName("h-2", 16020, 1700000000000)
LOG = "h1%2C16020%2C1700000000000.17000000{:05d}"


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("orders", ()),
        (f"orders-{FIRST}", (FIRST,)),
        (f"orders-{FIRST}-{SECOND}", (FIRST, SECOND)),
        (f"2-{SECOND}-{SECOND}", (SECOND, SECOND)),
    ],
)
def test_a_queue_is_named_by_its_peer_and_by_the_servers_that_had_it(
    text: str, servers: tuple[ServerName, ...]
) -> None:
    queue_id = QueueId.parse(text)
    assert (queue_id.peer, queue_id.former_servers) == (text.partition("-")[0], servers)
    assert queue_id.is_recovered is bool(servers)
    assert str(queue_id) == text


@pytest.mark.parametrize("text", ["", "-h,1,2", "p-h", "p-h,1", "p-h,1,2-", "p-h,1,x"])
def test_what_names_no_queue_is_refused(text: str) -> None:
    with pytest.raises(Corrupted):
        QueueId.parse(text)


def test_positions_are_read_in_every_form() -> None:
    prefix = b"\xff\x00\x00\x00\x04host"
    assert parse_position(b"", "p") is None
    assert parse_position(prefix, "p") is None
    assert parse_position(b"PBUF\x08\xac\x02", "p") == 300
    assert parse_position(prefix + b"PBUF\x08\xac\x02", "p") == 300
    assert parse_position((300).to_bytes(8, "big"), "p") == 300
    with pytest.raises(Corrupted):
        parse_position(b"12", "p")


def _znodes(nodes: dict[str, bytes]) -> HBaseZnodes:
    store = MemoryStore(MemoryEnsemble())
    store.commit([Create(path, data) for path, data in nodes.items()])
    return HBaseZnodes(store, "/hbase")


def test_queues_come_by_peer_with_recovered_ones_last_and_logs_in_order() -> None:
    root = f"/hbase/replication/rs/{SECOND}"
    znodes = _znodes(
        {
            f"{root}/lock": b"",
            f"{root}/orders-{FIRST}/{LOG.format(1)}": b"PBUF\x08\x05",
            f"{root}/orders/{LOG.format(12)}": b"",
            f"{root}/orders/{LOG.format(9)}": b"PBUF\x08\xac\x02",
            f"{root}/a/{LOG.format(12)}": b"",
        }
    )
    queues = read_queues(znodes)
    assert [str(queue.id) for queue in queues] == ["a", "orders", f"orders-{FIRST}"]
    assert queues[1].logs == (QueuedLog(LOG.format(9), 300), QueuedLog(LOG.format(12), None))
    assert queues[1].logs[0].created_ms == 1700000000009
    assert [queue.id.peer for queue in read_stable_queues(znodes, ["a"])] == ["a"]


def test_positions_are_read_of_the_logs_that_are_shipped_now() -> None:
    path = f"/hbase/replication/rs/{SECOND}/orders"
    groups = [f"h1%2C16020%2C1700000000000.regiongroup-{group}.{{}}" for group in (0, 1)]
    positions = {group.format(begun): b"PBUF\x08\x05" for group in groups for begun in range(100, 200)}
    znodes = _znodes({f"{path}/{name}": data for name, data in positions.items()})
    (queue,) = read_queues(znodes)
    assert len(queue.logs) == 200
    assert {log.name for log in queue.logs if log.position_bytes == 5} == {
        group.format(100) for group in groups
    }
    assert all(log.position_bytes is None for log in read_stable_queues(znodes)[0].logs)


def test_where_nothing_is_replicated_there_are_no_queues() -> None:
    assert read_queues(_znodes({"/hbase/hbaseid": b""})) == []
