"""Subscriptions on a real HBase: made, paused and dropped, and no region server ever aborts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import Refused
from rtolap.cli.main import app
from rtolap.metadata.store import Create
from rtolap.model.subscription import HBaseSource, Subscription, SubscriptionListener
from rtolap.sep.hbase.peers import Peer
from rtolap.sep.subscriptions import commands, states, steps
from rtolap.sep.subscriptions.records import ROOT, SubscriptionRecord, load
from rtolap.sep.subscriptions.source import SourceCluster, open_source
from rtolap.sep.subscriptions.steps import is_as_wanted, wanted_peer
from typer.testing import CliRunner

from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient

pytestmark = pytest.mark.integration


@pytest.fixture
def source(hbase: str) -> Iterator[SourceCluster]:
    with open_source(HBaseSource(hbase)) as opened:
        yield opened


@pytest.fixture
def subscription(hbase: str, unique_name: str) -> Subscription:
    return Subscription(
        name=unique_name,
        source=HBaseSource(hbase),
        tables={unique_name: ("cf",)},
        listener=SubscriptionListener("kafka", topic="changes"),
    )


def peer_of(source: SourceCluster, name: str) -> Peer | None:
    return source.master.peers().get(name)


def test_hbase_has_the_peer_that_is_wanted_until_it_is_dropped(
    source: SourceCluster, subscription: Subscription, hbase_client: HBaseClient
) -> None:
    name = subscription.name
    servers = hbase_client.region_servers()
    hbase_client.create_table(name, ("cf", "silent"), scope=0)
    kept = commands.create(source, subscription, 5)
    peer = peer_of(source, name)
    assert peer is not None
    assert peer.enabled
    assert is_as_wanted(peer, wanted_peer(subscription))
    assert states.state(source, name).state == "waiting"
    assert load(source.store, name) == kept
    (warning,) = commands.scope_warnings(source, subscription)
    assert warning.endswith(f"alter '{name}', {{NAME => 'cf', REPLICATION_SCOPE => 1}}")
    hbase_client.set_scope(name, ("cf", "silent"), 1)
    assert commands.scope_warnings(source, subscription) == []
    hbase_client.write(name, mutations.put(b"row", {"cf:x": b"1"}))
    commands.pause(source, name)
    assert states.state(source, name).state == "paused"
    commands.resume(source, name)
    commands.drop(source, name)
    assert peer_of(source, name) is None
    assert source.store.get(f"{ROOT}/{name}") is None
    assert hbase_client.region_servers() == servers


@pytest.mark.parametrize("serial", [False, True])
def test_everything_but_exclusions_can_be_followed(
    source: SourceCluster, subscription: Subscription, serial: bool
) -> None:
    everything = msgspec.structs.replace(
        subscription, tables={}, exclude_tables={"default:x": ("cf",)}, serial=serial, ratio=0.5
    )
    commands.create(source, everything, 5)
    try:
        peer = peer_of(source, everything.name)
        assert peer is not None
        assert is_as_wanted(peer, wanted_peer(everything))
        assert peer.replicate_all
    finally:
        commands.drop(source, everything.name)


@pytest.mark.parametrize("done", range(1, len(steps.CREATION)))
def test_what_a_killed_creation_left_is_finished_or_undone(
    source: SourceCluster, subscription: Subscription, hbase_client: HBaseClient, done: int
) -> None:
    servers = hbase_client.region_servers()
    kept = SubscriptionRecord(
        subscription=subscription,
        cluster_id="6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        start_ms=5,
        phase="creating",
    )
    for finish in (True, False):
        for step in steps.CREATION[:done]:
            step(source, kept)
        assert states.state(source, subscription.name).state == "creating"
        if finish:
            commands.resume(source, subscription.name)
            assert states.state(source, subscription.name).state == "waiting"
        commands.drop(source, subscription.name)
    assert peer_of(source, subscription.name) is None
    assert source.store.get(f"{ROOT}/{subscription.name}") is None
    assert hbase_client.region_servers() == servers


def test_a_node_that_would_abort_region_servers_keeps_the_peer_out(
    source: SourceCluster, subscription: Subscription, hbase_client: HBaseClient
) -> None:
    servers = hbase_client.region_servers()
    source.store.commit([Create(f"{ROOT}/{subscription.name}/hbaseid", b"no uuid")])
    with pytest.raises(Refused, match="abort"):
        commands.create(source, subscription, 5)
    assert peer_of(source, subscription.name) is None
    commands.drop(source, subscription.name)
    assert hbase_client.region_servers() == servers


def test_the_commands_tell_what_they_did(subscription: Subscription, hbase: str, tmp_path: Path) -> None:
    file = tmp_path / "sep.yaml"
    file.write_text(
        f"kind: subscription\nname: {subscription.name}\nsource: {{zookeeper: '{hbase}'}}\n"
        f"tables: {{{subscription.name}: []}}\nlistener: {{kind: kafka, topic: changes}}\n"
    )
    name, cluster = subscription.name, ("--cluster", f"{hbase}/hbase")

    def run(*words: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, ["sep", *words])
        return result.exit_code, result.stdout, result.stderr

    code, out, err = run("create", str(file), "--json")
    assert (code, json.loads(out)[0]["state"]) == (0, "waiting"), err
    assert f"HBase has no table {name}" in err
    code, out, _ = run("list", *cluster)
    assert (code, f"{name}\twaiting\t{name}\tkafka\t0\t0 of 1" in out.splitlines()) == (0, True)
    assert json.loads(run("pause", name, *cluster, "--json")[1])["state"] == "paused"
    assert json.loads(run("resume", name, *cluster, "--json")[1])["state"] == "waiting"
    code, out, _ = run("describe", name, *cluster, "--json")
    assert (code, json.loads(out)["definition"]["name"]) == (0, name)
    assert run("describe", name, *cluster)[0] == 0
    assert json.loads(run("drop", name, "--yes", *cluster, "--json")[1]) == {"dropped": name}
