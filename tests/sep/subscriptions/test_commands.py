"""Subscriptions are created, paused and dropped whole, whatever command was cut short before."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import uuid
from collections.abc import Callable, Iterator

import msgspec
import pytest
from rtolap.base.errors import AlreadyExists, CommitUnknown, DefinitionError, NotFound, Refused, Unavailable
from rtolap.base.settings import Settings
from rtolap.metadata import updates
from rtolap.metadata.store import Create, Put
from rtolap.model.subscription import HBaseSource, Subscription, SubscriptionListener
from rtolap.sep.delivery.journal import journal_name
from rtolap.sep.delivery.requests import Request
from rtolap.sep.hbase.peers import Peer
from rtolap.sep.listeners.assembly import journal_deleter
from rtolap.sep.shares.nodes import Member, ShareNodes
from rtolap.sep.shares.requests import post_to_shares
from rtolap.sep.subscriptions import commands, states
from rtolap.sep.subscriptions.records import ROOT, load
from rtolap.sep.subscriptions.source import SourceCluster

from tests.support.hbase.model_source import OWN_ID, Crash, ModelSource
from tests.support.sep.share_numbers import share_of
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_producer import MemoryAdmin
from tests.support.twins.metadata import MemoryStore
from tests.support.waiting import until

NOW_MS = 1_700_000_000_000
ORDERS = Subscription(
    name="orders",
    source=HBaseSource("127.0.0.1:2181", "/hbase"),
    tables={"orders": ("meta", "cf"), "default:items": ()},
    listener=SubscriptionListener("kafka", topic="orders_changes"),
)
_COUNTS = dict.fromkeys(
    ("delivered", "duplicates", "late", "dead_letters", "failed_calls", "remembered_edits", "failing_events"),
    0,
)
Command = Callable[[SourceCluster], object]


def create(source: SourceCluster) -> None:
    commands.create(source, ORDERS, NOW_MS)


def resume(source: SourceCluster) -> None:
    commands.resume(source, "orders")


def pause(source: SourceCluster) -> None:
    commands.pause(source, "orders")


def drop(source: SourceCluster) -> None:
    commands.drop(source, "orders")


def crashes(command: Command, prepared: Callable[[], ModelSource]) -> Iterator[ModelSource]:
    """A source for each change of the command: cut short right before it, and right after."""
    for number in itertools.count():
        for after in (False, True):
            model = prepared()
            try:
                command(model.crash_at(number, after=after))
            except Crash:
                yield model
                continue
            return


def created() -> ModelSource:
    """A consumer has served it, and was killed."""
    model = ModelSource()
    create(model.cluster)
    model.topics.add(journal_of(model))
    return model


def journal_of(model: ModelSource) -> str:
    return journal_name("orders", load(model.store, "orders").cluster_id)


def state(model: ModelSource) -> str:
    return states.state(model.cluster, "orders").state


def is_gone(model: ModelSource) -> bool:
    nodes = [path for path in model.ensemble.nodes if path.startswith(f"{ROOT}/")]
    return not model.master.known and not nodes and not model.topics


def test_a_created_subscription_has_its_nodes_and_an_enabled_peer() -> None:
    model = created()
    kept = load(model.store, "orders")
    assert (kept.subscription, kept.start_ms, kept.phase) == (ORDERS, NOW_MS, "created")
    node = model.store.get("/rtolap/sep/orders/hbaseid")
    assert node is not None
    assert uuid.UUID(node.data.decode()) not in (OWN_ID, uuid.UUID(int=0))
    assert model.store.children("/rtolap/sep/orders/rs") == ()
    assert model.master.known["orders"] == Peer(
        id="orders",
        cluster_key="127.0.0.1:2181:/rtolap/sep/orders",
        enabled=True,
        tables={"items": (), "orders": ("cf", "meta")},
        configuration={"replication.source.ratio": "1.0"},
    )
    assert state(model) == "waiting"


def test_a_subscription_of_everything_but_exclusions_says_so_to_hbase() -> None:
    model = ModelSource()
    subscription = msgspec.structs.replace(ORDERS, tables={}, exclude_namespaces=("test",), serial=True)
    commands.create(model.cluster, subscription, NOW_MS)
    peer = model.master.known["orders"]
    assert (peer.replicate_all, peer.exclude_namespaces, peer.serial) == (True, ("test",), True)


def test_it_begins_where_it_is_told() -> None:
    model = ModelSource()
    commands.create(model.cluster, msgspec.structs.replace(ORDERS, start="2026-01-31T10:00Z"), NOW_MS)
    assert load(model.store, "orders").start_ms == 1_769_853_600_000


def test_it_runs_once_a_consumer_has_a_port_and_rests_while_it_is_paused() -> None:
    model = created()
    model.store.commit([Create("/rtolap/sep/orders/rs/h1,16020,7", b"", ephemeral=True)])
    assert states.state(model.cluster, "orders").ports == ("h1:16020",)
    assert state(model) == "running"
    pause(model.cluster)
    assert state(model) == "paused"
    create(model.cluster)  # the same definition: nothing changes
    assert state(model) == "paused"
    resume(model.cluster)
    assert [each.state for each in states.all_states(model.cluster)] == ["running"]
    drop(model.cluster)
    assert is_gone(model)


def test_a_crash_at_any_change_of_creation_is_finished_by_the_next_command() -> None:
    for command, then in ((create, "waiting"), (resume, "waiting"), (pause, "paused")):
        count = 0
        for model in crashes(create, ModelSource):
            before = states.all_states(model.cluster)
            assert [each.state for each in before] in ([], ["creating"], ["waiting"])
            model.master.region_servers_read()
            if not before and command is not create:
                continue  # nothing was made
            command(model.cluster)
            assert state(model) == then
            count += 1
        assert count >= 8


def test_a_crash_at_any_change_of_creation_is_undone_by_a_drop() -> None:
    for model in crashes(create, ModelSource):
        if states.all_states(model.cluster):
            drop(model.cluster)
        assert is_gone(model)


def test_a_crash_at_any_change_of_a_drop_is_finished_by_the_next_command() -> None:
    count = 0
    for model in crashes(drop, created):
        model.master.region_servers_read()
        before = states.all_states(model.cluster)
        assert [each.state for each in before] in ([], ["waiting"], ["dropping"])
        if before:
            drop(model.cluster)
        assert is_gone(model)
        count += 1
    assert count >= 6
    for model in crashes(drop, created):
        create(model.cluster)
        assert state(model) == "waiting"
        assert model.topics <= {journal_of(model)}  # that of its predecessor is gone


def test_a_half_dropped_subscription_is_not_resumed() -> None:
    for model in crashes(drop, created):
        if [each.state for each in states.all_states(model.cluster)] == ["dropping"]:
            with pytest.raises(NotFound, match="gone now"):
                resume(model.cluster)
            assert is_gone(model)


def test_a_broken_connection_at_any_commit_changes_nothing() -> None:
    for number, when in itertools.product(range(8), ("before", "after")):
        model = ModelSource()
        counter = itertools.count()
        model.ensemble.fault = lambda _, counter=counter, number=number, when=when: (
            when if next(counter) == number else None
        )
        create(model.cluster)
        assert state(model) == "waiting"
        drop(model.cluster)
        assert is_gone(model)


def test_a_commit_that_never_succeeds_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "_PAUSE_MAX_S", 0.0)
    model = ModelSource()
    model.ensemble.fault = lambda _: "before"
    with pytest.raises(CommitUnknown):
        create(model.cluster)
    assert not model.master.known


def test_a_cluster_id_that_is_none_keeps_the_peer_from_being_added() -> None:
    for bad in (b"", b"orders", str(OWN_ID).encode(), str(uuid.UUID(int=7)).encode()):
        model = ModelSource()
        model.store.commit([Create("/rtolap/sep/orders/hbaseid", bad)])
        with pytest.raises(Refused, match="rtolap sep drop orders"):
            create(model.cluster)
        assert not model.master.known
        drop(model.cluster)
        create(model.cluster)
        assert state(model) == "waiting"


def test_names_of_others_are_respected() -> None:
    model = created()
    with pytest.raises(AlreadyExists, match="a difference in tables"):
        commands.create(model.cluster, msgspec.structs.replace(ORDERS, tables={"orders": ()}), NOW_MS)
    model = ModelSource()
    model.master.known["orders"] = Peer(id="orders", cluster_key="other:2181:/hbase", replicate_all=True)
    with pytest.raises(AlreadyExists, match="other:2181:/hbase"):
        create(model.cluster)
    assert model.store.children(ROOT) == ()
    with pytest.raises(DefinitionError, match="name"):
        commands.create(model.cluster, msgspec.structs.replace(ORDERS, name="a-b"), NOW_MS)
    for command in (pause, resume, drop):
        with pytest.raises(NotFound, match="there is no subscription orders"):
            command(model.cluster)


class NotAnswering(MemoryAdmin):
    def delete_topic(self, topic: str) -> None:
        raise Unavailable("no broker answers")


def test_a_journal_that_cannot_be_deleted_is_told_with_the_command_that_does() -> None:
    broker, told = MemoryBroker(), list[str]()
    topic = journal_name("orders", "5e0bd3a8-0c4d")
    broker.create(topic, 1)
    settings = Settings(kafka="k1:9092")

    def delete(admin: MemoryAdmin) -> None:
        journal_deleter(settings, told.append, lambda cluster: admin)(ORDERS, "5e0bd3a8-0c4d")

    delete(NotAnswering(broker))
    [words] = told
    assert words.endswith(f"kafka-topics.sh --bootstrap-server k1:9092 --delete --topic {topic}")
    assert "subscription orders stays in Kafka" in words
    delete(MemoryAdmin(broker))
    with pytest.raises(NotFound):
        MemoryAdmin(broker).partitions(topic)
    delete(MemoryAdmin(broker))  # a consumer may have deleted it
    assert len(told) == 1
    elsewhere = msgspec.structs.replace(ORDERS, listener=SubscriptionListener("kafka", cluster="unknown"))
    journal_deleter(settings, told.append)(elsewhere, "5e0bd3a8-0c4d")
    assert "unknown" in told[1]


def test_the_shares_of_several_consumers_are_shown_with_their_holders() -> None:
    model = ModelSource()
    shared = msgspec.structs.replace(ORDERS, consumers=3)
    record = commands.create(model.cluster, shared, NOW_MS)
    nodes = ShareNodes(model.store, record.paths, 3)
    shown = states.state(model.cluster, "orders")
    assert (shown.state, [share.consumer for share in shown.shares]) == ("waiting", ["", "", ""])
    for name, shares in (("a", (0, 2)), ("b", (1,))):
        nodes.join(Member(name, f"{name}:1", 1))
        for share in shares:
            nodes.claim(share, name)
    nodes.claim(0, "b")  # it is held
    model.store.commit([Create(f"{record.paths.rs}/h1,16020,7", b"", ephemeral=True)])
    delivery = msgspec.json.encode({**_COUNTS, "stopped": "an event cannot be delivered"})
    shown = states.state(model.cluster, "orders")
    assert (shown.state, shown.consumers) == ("running", ("a", "b"))
    assert [share.consumer for share in shown.shares] == ["a", "b", "a"]
    model.store.commit([Create(record.paths.delivery_of(1, 3), delivery, ephemeral=True)])
    shown = states.state(model.cluster, "orders")
    assert (shown.state, shown.problem) == ("stopped", "share 1: an event cannot be delivered")
    commands.drop(dataclasses.replace(model.cluster, consumers_leave_s=0.0), "orders")
    assert is_gone(model)


def test_requests_about_rows_go_to_the_shares_of_the_rows_and_others_to_all() -> None:
    model = ModelSource()
    record = commands.create(model.cluster, msgspec.structs.replace(ORDERS, consumers=2), NOW_MS)
    rows = tuple(b"%d" % number for number in range(20))
    paths = post_to_shares(model.store, record, Request("read", "orders", rows))
    found = {}
    for path in paths:
        node = model.store.get(path)
        assert node is not None
        share = path.split("/")[5]
        found |= dict.fromkeys(msgspec.json.decode(node.data, type=Request).rows, int(share))
    assert found == {row: share_of(row, 2) for row in rows}
    assert len(post_to_shares(model.store, record, Request("replay"))) == 2
    old = msgspec.structs.replace(record, subscription=ORDERS)
    (path,) = post_to_shares(model.store, old, Request("replay"))
    assert path.startswith("/rtolap/sep/orders/requests/")


def test_a_record_of_an_earlier_version_has_one_consumer() -> None:
    model = created()
    node = model.store.get("/rtolap/sep/orders/definition")
    assert node is not None
    document = msgspec.json.decode(node.data)
    document["subscription"].pop("consumers", None)
    model.store.commit([Put("/rtolap/sep/orders/definition", msgspec.json.encode(document), node.version)])
    assert load(model.store, "orders").subscription == ORDERS
    shown = states.state(model.cluster, "orders")
    assert (shown.shares, shown.consumers) == ((), ())


def test_a_drop_lets_consumers_with_shares_leave_first() -> None:
    model = ModelSource()
    record = commands.create(model.cluster, msgspec.structs.replace(ORDERS, consumers=2), NOW_MS)
    store = MemoryStore(model.ensemble)
    ShareNodes(store, record.paths, 2).join(Member("a", "a:1", 1))
    seen: list[str] = []

    def leave() -> None:
        until(lambda: load(model.store, "orders").phase == "dropping", "the phase is seen")
        seen.extend(model.store.children(record.paths.consumers))
        store.close()

    leaving = threading.Thread(target=leave)
    leaving.start()
    commands.drop(dataclasses.replace(model.cluster, consumers_leave_s=60.0), "orders")
    leaving.join()
    assert seen == ["a"]
    assert is_gone(model)


def test_a_drop_lets_its_consumers_leave_first() -> None:
    model = created()
    patient = dataclasses.replace(model.cluster, consumers_leave_s=60.0)
    stores = [MemoryStore(model.ensemble) for _ in range(2)]
    seen: list[str] = []
    for store in stores:
        store.elect("/rtolap/sep/orders/leader", "a consumer", lambda: None)
    until(lambda: len(model.store.children("/rtolap/sep/orders/leader")) == 2, "both stand for election")

    def leave() -> None:
        until(lambda: load(model.store, "orders").phase == "dropping", "the phase is seen")
        seen.extend(model.store.children("/rtolap/sep/orders/leader"))
        for store in stores:
            store.close()

    leaving = threading.Thread(target=leave)
    leaving.start()
    drop(patient)
    leaving.join()
    assert len(seen) == 2
    assert is_gone(model)


def test_what_others_did_to_a_subscription_is_shown() -> None:
    model = created()
    peer = model.master.known.pop("orders")
    assert "HBase has no such peer" in states.state(model.cluster, "orders").problem
    model.master.known["orders"] = msgspec.structs.replace(peer, tables={})
    assert "somebody has changed HBase's peer" in states.state(model.cluster, "orders").problem
    node = model.store.get("/rtolap/sep/orders/hbaseid")
    assert node is not None
    model.master.known["orders"] = peer
    model.store.commit([Put("/rtolap/sep/orders/hbaseid", b"x", node.version)])
    assert "region servers that read it may abort" in states.state(model.cluster, "orders").problem
    node = model.store.get("/rtolap/sep/orders/definition")
    assert node is not None
    model.store.commit([Put("/rtolap/sep/orders/definition", b"{}", node.version)])
    assert "cannot be read" in states.state(model.cluster, "orders").problem


def test_families_that_hbase_does_not_ship_are_named_with_the_statement_that_mends_it() -> None:
    model = created()
    model.master.families = {"orders": {"cf": False, "meta": True}, "test:t": {"f": False}}
    assert commands.scope_warnings(model.cluster, ORDERS) == [
        "HBase has no table items: its edits are followed once it is created with REPLICATION_SCOPE => 1",
        "edits of orders are not shipped, its REPLICATION_SCOPE is 0 for cf; in HBase's shell: "
        "alter 'orders', {NAME => 'cf', REPLICATION_SCOPE => 1}",
    ]
    everything = msgspec.structs.replace(ORDERS, tables={}, exclude_tables={"orders": ()})
    (warning,) = commands.scope_warnings(model.cluster, everything)
    assert warning.startswith("edits of test:t are not shipped")
