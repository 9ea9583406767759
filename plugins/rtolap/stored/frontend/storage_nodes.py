"""The storage nodes as the front ends see them: by name, at the address that their last heartbeat gave.

A node whose lease has run out is not called: one that stands still, as a paused machine does, would take
every call and answer none. Unless no node has a lease: then it was the front ends or the ledger that were
away.

Within its lease, a node that leaves a call unanswered is pinged. One that works for long answers pings, and
is waited for; one that answers none, while most of the living nodes do, stands still. It is not called until
it answers a ping again and every call that was given up has ended, at the latest by its own time-out: so no
call overtakes an earlier one. Where most nodes are silent the fault is more likely here, or the machine is
short of time, and who is called is waited for.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from rtolap.base.closeable import Closeable
from rtolap.base.errors import Unavailable
from rtolap.protocols.flight.client import PING_AFTER_S, PING_AGAIN_S, silence
from rtolap.protocols.storage.client import RowStream, StorageNode
from rtolap.protocols.storage.messages import (
    Heartbeat,
    HeartbeatAnswer,
    PutHead,
    StorageNodeInfo,
)
from rtolap.stored.metastore import nodes as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import StorageNode as NodeRow

log = logging.getLogger(__name__)

R = TypeVar("R")

LEASE_MS = 10_000
LATELY_MS = 24 * 3_600_000  # who is away for longer may be gone for ever
KNOWN_FOR_S = 1.0  # how long an address is believed without asking the ledger
CALLS_MAX = 64  # at once; more wait. Each commit, publication and change asks its nodes at once


class Clients(Protocol):
    """`protocols.storage.client.StorageClients`, or nodes in the same process."""

    def at(self, address: str) -> StorageNode: ...


class StorageNodes(Closeable):
    """The storage nodes of the ledger, as `RowNodes`. It is thread-safe. Addresses are read from the ledger,
    at most once in `KNOWN_FOR_S`."""

    def __init__(
        self,
        ledger: Ledger,
        clients: Clients,
        *,
        lease_ms: int = LEASE_MS,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._clients, self._lease_ms, self._now_s = ledger, clients, lease_ms, now_s
        self._lock = Lock()
        self._known: dict[str, StorageNodeInfo] = {}
        self._known_until_s = 0.0
        self._calls = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="node call")
        self._still: dict[str, float] = {}  # node that stands still -> when it was pinged last
        self._given_up: Counter[str] = Counter()  # calls of a node that nobody waits for any more

    def close(self) -> None:
        """Close the clients. Calls under way are not waited for: they end by their own time-outs."""
        self._calls.shutdown(wait=False, cancel_futures=True)

    def heartbeat(self, name: str, beat: Heartbeat) -> HeartbeatAnswer:
        """Note that a node lives, and where. Refused while another data folder has its name."""

        def work(connection: Connection) -> None:
            now_ms = self._ledger.now_ms(connection)
            node = NodeRow(name, beat.node_id, beat.address, beat.free_bytes, now_ms + self._lease_ms)
            rows.refresh(connection, node, now_ms)

        self._ledger.write(f"note the heartbeat of node {name}", type(None), work)
        with self._lock:
            known = self._known.get(name)
            if known is not None and not (known.alive and known.address == beat.address):
                self._known_until_s = 0.0  # it is back: look at once
        return HeartbeatAnswer(self._lease_ms)

    def alive(self, connection: Connection) -> tuple[str, ...]:
        """Return the names of live nodes."""
        return tuple(node.name for node in rows.alive(connection, self._ledger.now_ms(connection)))

    def open(self, connection: Connection) -> tuple[str, ...]:
        """Return the names of live nodes that take new tablets."""
        living = rows.alive(connection, self._ledger.now_ms(connection))
        return tuple(node.name for node in living if not node.draining)

    def lately(self, connection: Connection) -> tuple[str, ...]:
        """Return names of those that live, or did within `LATELY_MS`, and take new tablets."""
        since_ms = self._ledger.now_ms(connection) - LATELY_MS
        return tuple(node.name for node in rows.alive(connection, since_ms) if not node.draining)

    def all_nodes(self) -> tuple[StorageNodeInfo, ...]:
        def work(connection: Connection) -> tuple[StorageNodeInfo, ...]:
            now_ms = self._ledger.now_ms(connection)
            return tuple(
                StorageNodeInfo(
                    node.name, node.address, node.lease_until_ms > now_ms, node.free_bytes, node.draining
                )
                for node in rows.all_nodes(connection)
            )

        return self._ledger.read("read the storage nodes", work)

    def address(self, name: str) -> str:
        """Return the address of a node. Raises Unavailable for a node that never sent a heartbeat, whose
        lease has run out, or that stands still."""
        known_node, is_any_alive = self._find(name)
        if known_node is None:
            raise Unavailable(f"storage node {name} has never sent a heartbeat")
        if is_any_alive and not known_node.alive:
            raise Unavailable(f"storage node {name} has sent no heartbeat for {self._lease_ms / 1000:g} s")
        if not self._is_callable(name):
            raise _still(name)
        return known_node.address

    def addresses(self) -> dict[str, str]:
        """Return the addresses by name of nodes that are alive and not suspended."""
        return {
            node.name: node.address
            for node in self.all_nodes()
            if node.alive and self._is_callable(node.name)
        }

    def client(self, name: str) -> StorageNode:
        return self._clients.at(self.address(name))

    def ask(self, name: str, call: Callable[[StorageNode], R]) -> R:
        """Return what `call` returns, which runs on another thread. Raises Unavailable also for a node that
        turns out to stand still: it may carry out the request when it goes on.
        """
        node = self.client(name)
        answer = self._calls.submit(call, node)
        while not wait((answer,), PING_AFTER_S).done:
            if self._stands_still(name, answer):
                raise _still(name)
        return answer.result()

    def stands_still(self, name: str) -> bool:
        """Return True if it answers no ping while most of the living nodes do. Takes two times `PING_S` at
        most.
        """
        return self._stands_still(name, None)

    def put(self, node: str, head: PutHead, columns: pa.Schema) -> RowStream:
        return self.client(node).put(head, columns)

    def _find(self, name: str) -> tuple[StorageNodeInfo | None, bool]:
        """Return the node with that name, and True if any node has a lease."""
        with self._lock:
            if self._now_s() >= self._known_until_s or name not in self._known:
                self._known = {node.name: node for node in self.all_nodes()}
                self._known_until_s = self._now_s() + KNOWN_FOR_S
            return self._known.get(name), any(node.alive for node in self._known.values())

    def _stands_still(self, name: str, call: Future[Any] | None) -> bool:
        """Return whether a node stands still; `call` is then given up."""
        with self._lock:
            known_still = name in self._still
        news = not known_still and self._most_others_answer(name)
        with self._lock:
            if not (known_still or news) or (call is not None and call.done()):
                return False
            if news:
                self._still[name] = self._now_s()
            if call is not None:
                self._given_up[name] += 1
        if call is not None:
            call.add_done_callback(lambda _: self._ended(name))
        if news:
            log.warning("storage node %s stands still: it answers no ping, and most others do", name)
        return True

    def _most_others_answer(self, name: str) -> bool:
        """Return True if the node does not answer while most of the others do."""
        known_node, _ = self._find(name)
        if known_node is None or self._answers(known_node):
            return False
        with self._lock:
            living = [node for node in self._known.values() if node.alive and node.name != name]
            callable_nodes = [node for node in living if node.name not in self._still]
        return sum(self._calls.map(self._answers, callable_nodes)) > (len(living) + 1) // 2

    def _ended(self, name: str) -> None:
        with self._lock:
            self._given_up[name] -= 1

    def _is_callable(self, name: str) -> bool:
        """Return True if a node may be called. A node that stood still is pinged again in the background, not
        by the caller.
        """
        with self._lock:
            if name not in self._still:
                return True
            node = self._known.get(name)
            if node is not None and self._now_s() - self._still[name] >= PING_AGAIN_S:
                self._still[name] = self._now_s()
                self._calls.submit(self._look_again, node)
        return False

    def _look_again(self, node: StorageNodeInfo) -> None:
        if not self._answers(node):
            return
        with self._lock:
            goes_on = self._given_up[node.name] == 0 and self._still.pop(node.name, None) is not None
        if goes_on:
            log.info("storage node %s goes on", node.name)

    def _answers(self, node: StorageNodeInfo) -> bool:
        return silence(self._clients.at(node.address).ping) is None


def _still(name: str) -> Unavailable:
    return Unavailable(f"storage node {name} stands still: it answers no ping")
