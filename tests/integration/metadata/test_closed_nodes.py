"""Who has no password of a cluster's nodes: another process that reaches the same ZooKeeper."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from rtolap.base.clock import SystemClock
from rtolap.base.errors import Forged, Unauthorized
from rtolap.base.settings import Settings
from rtolap.metadata import paths
from rtolap.metadata.cluster_store import open_cluster_store, open_zookeeper
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.protection import protect_cluster
from rtolap.metadata.records import ReceiverRecord
from rtolap.metadata.store import Create, Delete, Put
from rtolap.metadata.zookeeper import ZooKeeperStore

from tests.support.cubes.metadata_contract import eventually

pytestmark = pytest.mark.integration

TOKEN = "the-secret-of-this-cluster"
Fill = Callable[[Settings], None]
RECORD = ReceiverRecord("r1", "127.0.0.1", 7080, "left")


@pytest.fixture
def settings(tmp_path: Path, zookeeper: str, unique_name: str) -> Settings:
    (tmp_path / "token").write_text(TOKEN)
    return Settings(
        zookeeper=zookeeper,
        zookeeper_root=f"/{unique_name}/cluster",
        token_file=tmp_path / "token",
        session_timeout_s=6.0,
    )


@pytest.fixture
def anybody(zookeeper: str) -> Iterator[KazooClient]:
    """Without credentials."""
    client = KazooClient(zookeeper, timeout=6)
    client.start(timeout=30)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def fill() -> Iterator[Fill]:
    """Let every kind of writing make nodes: records, ephemerals, candidates; until the test's end."""
    with ExitStack() as opened:
        yield lambda settings: _fill(settings, opened)


def _fill(settings: Settings, opened: ExitStack) -> None:
    store = open_cluster_store(settings)
    opened.callback(store.close)
    metadata = ClusterMetadata(store, SystemClock())
    metadata.register_receiver(RECORD)
    metadata.announce_live("r1", "instance")
    election = store.elect(paths.ELECTION, "http://127.0.0.1:7070", lambda: None)
    eventually(election.is_leader, "it leads")
    assert metadata.coordinators() == ("http://127.0.0.1:7070",)
    store.commit([Put(paths.receiver("r1"), b"{}", 0), Create("/a/b/c/d", b"deep")])
    store.commit([Delete("/a/b/c/d")])


def every_node(settings: Settings) -> list[str]:
    """Return the paths of all nodes of the cluster, its root first."""
    store = open_zookeeper(settings)
    found, waiting = [], [""]
    while waiting:
        path = waiting.pop()
        found.append(settings.zookeeper_root + path)
        waiting += [f"{path}/{name}" for name in store.children(path)]
    store.close()
    return found


def test_nobody_without_the_password_reads_or_writes_a_node(
    settings: Settings, anybody: KazooClient, fill: Fill
) -> None:
    fill(settings)
    nodes = every_node(settings)
    assert len(nodes) > 10
    asked: list[Callable[[str], object]] = [
        anybody.get,
        anybody.get_children,
        lambda node: anybody.set(node, b"x"),
        lambda node: anybody.create(f"{node}/child", b"x"),
        lambda node: anybody.set_acls(node, OPEN_ACL_UNSAFE),
        lambda node: anybody.delete(f"{node}/{anybody.get_children(node)[0]}"),
    ]
    for node in nodes:
        for ask in asked:
            with pytest.raises(NoAuthError):
                ask(node)


def test_a_service_with_another_token_is_refused_by_name(
    settings: Settings, tmp_path: Path, fill: Fill
) -> None:
    fill(settings)
    (tmp_path / "another").write_text("another")
    with pytest.raises(Unauthorized, match="closed to this process") as caught:
        open_cluster_store(settings.model_copy(update={"token_file": tmp_path / "another"}))
    assert TOKEN not in str(caught.value)


def test_a_password_of_its_own_is_used_where_one_is_declared(
    settings: Settings, tmp_path: Path, fill: Fill
) -> None:
    (tmp_path / "password").write_text("of ZooKeeper alone\n")
    own = settings.model_copy(update={"zookeeper_password_file": tmp_path / "password"})
    fill(own)
    with pytest.raises(Unauthorized):
        open_cluster_store(settings)
    client = KazooClient(settings.zookeeper, timeout=6, auth_data=[("digest", "rtolap:of ZooKeeper alone")])
    client.start(timeout=30)
    assert client.get_acls(settings.zookeeper_root)[0] == [
        make_digest_acl("rtolap", "of ZooKeeper alone", all=True)
    ]
    client.stop()
    client.close()


def test_a_cluster_that_was_open_is_said_to_be_so_and_is_closed_by_a_command(
    settings: Settings, anybody: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    before = ZooKeeperStore(settings.zookeeper, root=settings.zookeeper_root)
    ClusterMetadata(before, SystemClock()).register_receiver(RECORD)
    before.close()

    store = open_cluster_store(settings)
    assert any("rtolap coordinator protect" in warning for warning in warnings(caplog))
    with pytest.raises(Forged, match="rtolap coordinator protect"):
        store.get(paths.receiver("r1"))
    store.close()

    raw = open_zookeeper(settings)
    shown = protect_cluster(raw, TOKEN, apply=False)
    assert {node.path for node in shown if node.unsigned} == {paths.receiver("r1"), paths.replica_set("left")}
    assert shown[0].path == ""
    assert all(node.open for node in shown)
    assert protect_cluster(raw, TOKEN, apply=False) == shown, "looking changes nothing"
    protect_cluster(raw, TOKEN, apply=True)
    assert protect_cluster(raw, TOKEN, apply=False) == []
    raw.close()

    caplog.clear()
    store = open_cluster_store(settings)
    assert ClusterMetadata(store, SystemClock()).receivers() == {"r1": RECORD}
    assert warnings(caplog) == []
    store.close()
    for node in every_node(settings):
        with pytest.raises(NoAuthError):
            anybody.get(node)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what is logged as a warning or worse; a test before this one may have let more be logged."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_nodes_of_others_in_the_same_zookeeper_stay_as_they_are(
    settings: Settings, anybody: KazooClient, unique_name: str, fill: Fill
) -> None:
    """HBase and Kafka have nodes of their own there, which rtolap reads and writes without a password."""
    fill(settings)
    theirs = f"/{unique_name}-theirs"
    anybody.create(theirs, b"theirs")
    store = ZooKeeperStore(settings.zookeeper, root="/")
    node = store.get(theirs)
    assert node is not None
    assert node.data == b"theirs"
    store.commit([Create(f"{theirs}/ours", b"ours")])
    assert anybody.get(f"{theirs}/ours")[0] == b"ours"
    assert anybody.get_acls(f"{theirs}/ours")[0] == OPEN_ACL_UNSAFE
    store.close()


@pytest.mark.parametrize(
    "word", ["ruok", "stat", "dump", "cons", "envi", "conf", "wchp", "wchc", "mntr", "crst"]
)
def test_the_server_answers_no_four_letter_word_but_the_one_that_is_needed(zookeeper: str, word: str) -> None:
    assert b"not in the whitelist" in _asked(zookeeper, word)


def test_the_word_that_is_needed_names_the_mode(zookeeper: str) -> None:
    assert b"Mode:" in _asked(zookeeper, "srvr")


def _asked(address: str, word: str) -> bytes:
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(word.encode())
        answer = b""
        while chunk := connection.recv(4096):
            answer += chunk
    return answer
