"""Storage nodes by name, at the addresses that their last heartbeats gave; in a front end and in a node.

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
from concurrent.futures import Future, wait
from threading import Lock
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from rtolap.base.closeable import Closeable
from rtolap.base.errors import Unavailable
from rtolap.base.ids import CarryingPool
from rtolap.protocols.flight.client import PING_AFTER_S, PING_AGAIN_S, silence
from rtolap.protocols.storage.client import RowStream, StorageNode
from rtolap.protocols.storage.messages import PutHead, StorageNodeInfo

log = logging.getLogger(__name__)

R = TypeVar("R")

KNOWN_FOR_S = 1.0  # how long an address is believed without asking again
CALLS_MAX = 64  # at once; more wait. Each commit, publication and change asks its nodes at once


class Clients(Protocol):
    """`protocols.storage.client.StorageClients`, or nodes in the same process."""

    def at(self, address: str) -> StorageNode: ...


class NodeDirectory(Closeable):
    """The storage nodes that `listed` returns, as `RowNodes`. It is thread-safe. `listed` is called at most
    once in `KNOWN_FOR_S`.
    """

    def __init__(
        self,
        listed: Callable[[], tuple[StorageNodeInfo, ...]],
        clients: Clients,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listed, self._clients, self._now_s = listed, clients, now_s
        self._lock = Lock()
        self._known: dict[str, StorageNodeInfo] = {}
        self._known_until_s = 0.0
        self._calls = CarryingPool(CALLS_MAX, thread_name_prefix="node call")
        self._still: dict[str, float] = {}  # node that stands still -> when it was pinged last
        self._given_up: Counter[str] = Counter()  # calls of a node that nobody waits for any more

    def close(self) -> None:
        """Close the clients. Calls under way are not waited for: they end by their own time-outs."""
        self._calls.shutdown(wait=False, cancel_futures=True)

    def note_heard(self, name: str, address: str) -> None:
        """Note that a node lives at an address. Where that is news, the next call reads the list again."""
        with self._lock:
            known = self._known.get(name)
            if known is not None and not (known.alive and known.address == address):
                self._known_until_s = 0.0

    def address(self, name: str) -> str:
        """Return the address of a node. Raises Unavailable for a node that never sent a heartbeat, whose
        lease has run out, or that stands still."""
        known_node, is_any_alive = self._find(name)
        if known_node is None:
            raise Unavailable(f"storage node {name} has never sent a heartbeat")
        if is_any_alive and not known_node.alive:
            raise Unavailable(f"storage node {name} has sent no heartbeat for too long")
        if not self._is_callable(name):
            raise _still(name)
        return known_node.address

    def callable_nodes(self) -> tuple[StorageNodeInfo, ...]:
        """Return the nodes that are alive and not suspended, by name."""
        self._refresh()
        with self._lock:
            known = tuple(self._known.values())
        return tuple(node for node in known if node.alive and self._is_callable(node.name))

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

    def _refresh(self, name: str | None = None) -> None:
        """Read the list again where it is old, or lacks this node."""
        with self._lock:
            if self._now_s() >= self._known_until_s or (name is not None and name not in self._known):
                self._known = {node.name: node for node in self._listed()}
                self._known_until_s = self._now_s() + KNOWN_FOR_S

    def _find(self, name: str) -> tuple[StorageNodeInfo | None, bool]:
        """Return the node with that name, and True if any node has a lease."""
        self._refresh(name)
        with self._lock:
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
