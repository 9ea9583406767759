"""Queues of logs that region servers have yet to ship, as HBase 2 keeps them in ZooKeeper.

<parent>/replication/rs/<server>/<queue id>/<log>   PBUF position, eight bytes, or nothing: how far it is read

A queue's id is the peer, and behind it each server that had the queue before and is gone: `orders` is the
server's own queue, `orders-h1,16020,1700000000000` one that it has recovered. Hosts' names may hold "-" too,
so a "-" ends a server only behind its second comma.

HBase 3 keeps queues in a table: there, none are found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from rtolap.base.errors import Corrupted
from rtolap.sep.hbase import admin_pb2
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName, parse_message, without_metadata

_POSITION_BYTES = 8
_CREATED_MS = re.compile(r"\.(\d+)(?:\.syncrep)?$")


class QueueId(msgspec.Struct, frozen=True, order=True):
    """The name of a replication queue.

    Attributes:
        former_servers: failed owners, the first one first; empty for the server's own queue.
    """

    peer: str
    former_servers: tuple[ServerName, ...] = ()

    @property
    def is_recovered(self) -> bool:
        return bool(self.former_servers)

    def __str__(self) -> str:
        return "-".join((self.peer, *map(str, self.former_servers)))

    @staticmethod
    def parse(text: str) -> QueueId:
        """Parse a queue's id. Raises Corrupted for anything else."""
        peer, separator, rest = text.partition("-")
        if not peer:
            raise Corrupted("not the id of a queue", expected="peer, or peer-server…", found=repr(text))
        return QueueId(peer, tuple(ServerName.parse(name) for name in _servers(rest)) if separator else ())


class QueuedLog(msgspec.Struct, frozen=True):
    """A write-ahead log in a queue.

    Attributes:
        name: the name of the file, with its escapes.
        position_bytes: how much is shipped; None where nothing is.
    """

    name: str
    position_bytes: int | None = None

    @property
    def written_as(self) -> str:
        """Return what the names of all logs of one writer begin with: a server may have several writers."""
        return self.name.rpartition(".")[0]

    @property
    def created_ms(self) -> int | None:
        """The instant at which the server began the log, milliseconds since 1970, as its name says."""
        match = _CREATED_MS.search(self.name)
        return int(match[1]) if match else None


class Queue(msgspec.Struct, frozen=True):
    """A replication queue.

    Attributes:
        server: the server that ships it.
        logs: in the order in which they are shipped, the current one first.
    """

    server: ServerName
    id: QueueId
    logs: tuple[QueuedLog, ...]

    @property
    def open_logs(self) -> frozenset[str]:
        """Return the names of those that are still written: of a server that lives, each writer's newest."""
        if self.id.is_recovered:
            return frozenset()
        return frozenset({log.written_as: log.name for log in self.logs}.values())


def read_queues(
    znodes: HBaseZnodes, peers: Iterable[str] | None = None, *, positions: bool = True
) -> list[Queue]:
    """Read the queues of the `peers`, or of all. They are sorted by peer, recovered ones last, then by
    server.

    `positions`: read those too, of the logs that are shipped now, the oldest of each kind that a server
    writes. A large cluster has tens of thousands of others, which have none.

    Queues move while they are read, when a server takes over what another left: one that does may be
    missing from what is returned, or be there twice. See `read_stable_queues`.
    """
    root = f"{znodes.parent}/replication/rs"
    wanted = None if peers is None else frozenset(peers)
    queues: list[Queue] = []
    for server in znodes.store.children(root):
        for text in znodes.store.children(f"{root}/{server}"):
            queue_id = _queue_id(text)
            if queue_id is None or (wanted is not None and queue_id.peer not in wanted):
                continue
            path = f"{root}/{server}/{text}"
            logs = sorted(
                map(QueuedLog, znodes.store.children(path)), key=lambda log: (log.created_ms or 0, log.name)
            )
            if positions:
                logs = _with_positions(znodes, path, logs)
            queues.append(Queue(ServerName.parse(server), queue_id, tuple(logs)))
    return sorted(queues, key=lambda queue: (queue.id.peer, queue.id.is_recovered, queue.server, queue.id))


def read_stable_queues(znodes: HBaseZnodes, peers: Iterable[str] | None = None) -> list[Queue]:
    """Read queues without positions until two readings name the same queues.

    A queue that moves between servers is then not missed.
    """
    wanted = None if peers is None else tuple(peers)
    before = read_queues(znodes, wanted, positions=False)
    while True:
        now = read_queues(znodes, wanted, positions=False)
        if [(queue.server, queue.id) for queue in before] == [(queue.server, queue.id) for queue in now]:
            return now
        before = now


def _with_positions(znodes: HBaseZnodes, path: str, logs: list[QueuedLog]) -> list[QueuedLog]:
    """Return the logs with their positions.

    A log that is gone is left out, and the next one of its kind is read.
    """
    current: set[str] = set()
    read: list[QueuedLog] = []
    for log in logs:
        if log.written_as in current:
            read.append(log)
            continue
        node = znodes.store.get(f"{path}/{log.name}")
        if node is not None:
            current.add(log.written_as)
            read.append(QueuedLog(log.name, parse_position(node.data, f"{path}/{log.name}")))
    return read


def parse_position(data: bytes, what: str) -> int | None:
    """Return bytes from the beginning of the log, None where nothing is noted. Raises Corrupted."""
    payload = without_metadata(data)
    if not payload:
        return None
    if len(payload) == _POSITION_BYTES and not payload.startswith(b"PBUF"):
        return int.from_bytes(payload, "big", signed=True)
    return parse_message(data, admin_pb2.ReplicationHLogPosition, what).position


def _queue_id(text: str) -> QueueId | None:
    """Parse the id of a queue; None for HBase's other nodes, such as the lock of a server that takes over."""
    return None if text == "lock" or text.startswith("hfile-refs") else QueueId.parse(text)


def _servers(text: str) -> Iterable[str]:
    """Return the names of servers that "-" joins."""
    begin, commas = 0, 0
    for at, character in enumerate(text):
        if character == ",":
            commas += 1
        elif character == "-" and commas >= 2:
            yield text[begin:at]
            begin, commas = at + 1, 0
    yield text[begin:]
