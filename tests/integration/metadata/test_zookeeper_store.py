from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from rtolap.base.errors import CommitUnknown, SessionLost, Unavailable
from rtolap.metadata.store import Create, MetadataStore, Put
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.metadata_contract import MetadataStoreContract, Sessions, eventually
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration

SESSION_S = 2.0


class ZooKeeperSessions(Sessions):
    def __init__(self, hosts: str, root: str) -> None:
        self.hosts = hosts
        self.root = root
        self.opened: list[ZooKeeperStore] = []

    def open(self, session_s: float = SESSION_S) -> ZooKeeperStore:
        self.opened.append(ZooKeeperStore(self.hosts, root=self.root, session_timeout_s=session_s))
        return self.opened[-1]

    def expire(self, store: MetadataStore) -> None:
        """A second client takes the session over and ends it: the server then refuses the first one."""
        assert isinstance(store, ZooKeeperStore)
        thief = KazooClient(self.hosts, client_id=store._client.client_id, timeout=SESSION_S)
        thief.start()
        thief.stop()
        thief.close()


@pytest.fixture
def zookeeper_sessions(zookeeper: str, unique_name: str) -> Iterator[ZooKeeperSessions]:
    sessions = ZooKeeperSessions(zookeeper, f"/{unique_name}")
    yield sessions
    for store in sessions.opened:
        store.close()


class TestZooKeeperStore(MetadataStoreContract):
    @pytest.fixture
    def sessions(self, zookeeper_sessions: ZooKeeperSessions) -> Sessions:
        return zookeeper_sessions


def test_a_restart_of_the_server_is_ridden_out(
    zookeeper_sessions: ZooKeeperSessions, zookeeper_server: ManagedProcess
) -> None:
    # a call waits for two sessions' time, and a slow machine starts a server slowly
    store, other = zookeeper_sessions.open(patience_s(SESSION_S)), zookeeper_sessions.open()
    store.commit([Create("/w", b"1")])
    seen: list[bytes] = []

    def look() -> None:
        node = other.get("/w")
        assert node is not None
        seen.append(node.data)

    other.watch("/w", look)
    eventually(lambda: seen == [b"1"], "the watch stands")
    election = store.elect("/e", "one", lambda: None)
    eventually(election.is_leader, "leads")
    zookeeper_server.kill()
    eventually(lambda: not election.is_leader(), "a leader without a connection does not lead")
    reading: list[bytes] = []

    def read() -> None:
        node = store.get("/w")
        assert node is not None
        reading.append(node.data)

    waiting = threading.Thread(target=read)
    waiting.start()
    zookeeper_server.start()
    waiting.join(patience_s(20))
    assert reading == [b"1"], "a read waits for the server"
    eventually(election.is_leader, "leads again")
    node = store.get("/w")
    assert node is not None
    store.commit([Put("/w", b"2", node.version)])
    eventually(lambda: seen[-1] == b"2", "the watch still tells")


def test_without_a_server_calls_end_in_a_clear_error(
    zookeeper_sessions: ZooKeeperSessions, zookeeper_server: ManagedProcess
) -> None:
    store = zookeeper_sessions.open()
    zookeeper_server.kill()
    try:
        with pytest.raises(Unavailable):
            store.get("/a")
        with pytest.raises((Unavailable, CommitUnknown, SessionLost)):
            store.commit([Create("/a", b"")])
        with pytest.raises(Unavailable, match="ZooKeeper does not answer"):
            ZooKeeperStore(zookeeper_sessions.hosts, session_timeout_s=0.5)
    finally:
        zookeeper_server.start()
    eventually(store.connected, "connected again")
    store.commit([Create("/a", b"")])
