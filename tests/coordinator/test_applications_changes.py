"""Applications that change: in place while they run, hosts that return, drains that outlive a leader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rtolap.base.errors import DefinitionError, NotFound, NotLeader, Refused
from rtolap.cli import definitions
from rtolap.metadata.applications import BYTES_MAX, ApplicationRecords, ListedHosts, packed, unpacked
from rtolap.metadata.records import LeavingHost
from rtolap.model.application import Application
from rtolap.protocols.watermark import messages as wire
from rtolap.protocols.watermark.messages import HostsChange
from typer.testing import CliRunner

from tests.support.cubes.coordinator_harness import CUBE, TABLE, Cluster
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore
from tests.support.watermarks.application_reports import (
    NAME,
    Reporter,
    application,
    declared,
    now,
    registered,
    takeover,
)


@pytest.fixture
def reporter(cluster: Cluster) -> Reporter:
    """Hosts a and b have been read up to ten and twenty ms ago, and that is published."""
    found = declared(cluster)
    registered(cluster, "a", "b")
    found.progress(0, a=now(cluster, 10), b=now(cluster, 20))
    cluster.coordinator.tick()
    return found


def global_ms(cluster: Cluster) -> int | None:
    cluster.coordinator.tick()
    return cluster.client.application_watermarks(NAME).global_ms


def all_but_one_host() -> dict[str, Any]:
    return application(rule={"host_precise": {"delayed_hosts_ppm": 50_000}})


def test_a_changed_rule_begins_an_epoch_in_which_everybody_says_again_what_there_is(
    cluster: Cluster, reporter: Reporter
) -> None:
    before = cluster.client.application(NAME)
    changed = application(rule={"deficit": {"missing_events_ppm": 100, "window_ms": 60_000}})
    cluster.client.change_application(NAME, changed)
    after = cluster.client.application(NAME)
    assert after.epoch > before.epoch
    assert after.definition["sources"][0]["rule"]["deficit"]["window_ms"] == 60_000
    assert after.hosts == {"web": 2}, "who is registered stays so"
    assert global_ms(cluster) == now(cluster, 20), "what was published stands"
    assert cluster.client.application_hosts(NAME).awaited_partitions == (0,)
    old_epoch = reporter.epoch
    answer = reporter.progress(0, a=now(cluster, 5), b=now(cluster, 5))
    assert reporter.epoch == answer["epoch"] == after.epoch > old_epoch
    assert global_ms(cluster) == now(cluster, 5)


def test_a_change_survives_its_repetition_and_the_next_leader(cluster: Cluster, reporter: Reporter) -> None:
    cluster.client.change_application(NAME, all_but_one_host())
    first = cluster.client.application(NAME)
    cluster.client.change_application(NAME, all_but_one_host())
    assert cluster.client.application(NAME).epoch == first.epoch, "nothing has changed"
    takeover(cluster)
    assert cluster.client.application(NAME).definition == first.definition
    assert global_ms(cluster) == now(cluster, 20)


def test_added_levels_hold_nobody_back_and_removed_ones_vanish(cluster: Cluster, reporter: Reporter) -> None:
    unit = {"level": "sessions", "processor": "p", "oldest_work_ms": now(cluster, 30)}
    reporter.send(units=[unit])
    grown = application()
    grown["sinks"].append({"name": "alerts"})
    grown["edges"].append(["sessions", "alerts"])
    cluster.client.change_application(NAME, grown)
    cluster.coordinator.tick()
    levels = cluster.client.application_watermarks(NAME).levels
    assert levels["alerts"].input_ms == levels["sessions"].output_ms == now(cluster, 20)
    shrunk = {**application(), "operators": [], "edges": [["web", "store"]]}
    cluster.client.change_application(NAME, shrunk)
    assert sorted(cluster.client.application_watermarks(NAME).levels) == ["store", "web"]
    assert cluster.client.application(NAME).units == 0, "its units went along"
    reporter.progress(0, a=now(cluster, 1), b=now(cluster, 2))
    assert global_ms(cluster) == now(cluster, 2)


def test_a_source_that_was_removed_leaves_no_hosts_to_one_of_its_name(
    cluster: Cluster, reporter: Reporter
) -> None:
    two = application()
    two["sources"].append({**two["sources"][0], "name": "app"})
    two["edges"].append(["app", "sessions"])
    cluster.client.change_application(NAME, two)
    cluster.client.change_hosts(NAME, "app", "register", ["x", "y"])
    reporter.progress(0, a=now(cluster, 1), b=now(cluster, 2))
    assert global_ms(cluster) == now(cluster, 20), "no regression, and nothing new without the other source"
    cluster.client.change_application(NAME, application())
    reporter.progress(0, a=now(cluster, 1), b=now(cluster, 2))
    assert global_ms(cluster) == now(cluster, 2)
    cluster.client.change_application(NAME, two)
    assert cluster.client.application(NAME).hosts == {"web": 2, "app": 0}
    assert global_ms(cluster) == now(cluster, 2)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (application(rule={"partitions": {}}, hosts=None), "cannot change between partitions and hosts"),
        (
            {
                **application(),
                "operators": [],
                "sinks": [{"name": "sessions"}],
                "edges": [["web", "sessions"]],
            },
            "level sessions cannot change its kind; expected operator; found sink",
        ),
    ],
)
def test_a_change_that_gives_watermarks_another_meaning_is_refused(
    cluster: Cluster, reporter: Reporter, changed: dict[str, Any], said: str
) -> None:
    before = cluster.client.application(NAME)
    with pytest.raises(Refused, match=said):
        cluster.client.change_application(NAME, changed)
    after = cluster.client.application(NAME)
    assert (after.epoch, after.definition) == (before.epoch, before.definition)
    assert after.counters["refused_definitions"] == 1


def test_an_application_is_changed_under_its_own_name_only(cluster: Cluster, reporter: Reporter) -> None:
    with pytest.raises(DefinitionError, match="cannot be renamed"):
        cluster.client.change_application(NAME, {**application(), "name": "other"})
    with pytest.raises(NotFound, match="other"):
        cluster.client.change_application("other", {**application(), "name": "other"})


def test_what_a_cube_closes_by_is_neither_removed_nor_dropped(cluster: Cluster, reporter: Reporter) -> None:
    cluster.client.create_table({**TABLE, "host_column": "page"})
    mark = {"application": NAME, "source": "web", "sink": "store"}
    cluster.client.create_cube({**CUBE, "watermark": mark})
    renamed = {
        **application(),
        "sinks": [{"name": "shop"}],
        "edges": [["web", "sessions"], ["sessions", "shop"]],
    }
    with pytest.raises(Refused, match=f"cube {CUBE['name']} closes by it: no such sink"):
        cluster.client.change_application(NAME, renamed)
    with pytest.raises(Refused, match="cannot be dropped"):
        cluster.client.drop_application(NAME)
    cluster.client.change_application(NAME, all_but_one_host())
    cluster.client.drop_cube(CUBE["name"])
    cluster.client.drop_application(NAME)
    assert cluster.client.applications() == []


def test_who_still_runs_the_former_definition_persists_nothing(cluster: Cluster, reporter: Reporter) -> None:
    former = cluster.coordinator.applications.running(NAME)
    reporter.progress(0, a=now(cluster), b=now(cluster))
    cluster.client.change_application(NAME, all_but_one_host())
    hosts = cluster.client.application(NAME).hosts
    published = former.published
    for late in (
        former.tick,
        lambda: former.change_hosts(HostsChange(level="web", action="register", hosts=("late",))),
        lambda: former.change_hosts(HostsChange(level="web", action="remove", hosts=("a",))),
    ):
        with pytest.raises(NotLeader, match="epoch"):
            late()
    assert former.published == published
    takeover(cluster)
    assert cluster.client.application(NAME).hosts == hosts == {"web": 2}


def test_a_change_of_which_the_answer_was_lost_is_made_once() -> None:
    store = MemoryStore(MemoryEnsemble())
    records = ApplicationRecords(store)
    before = msgspec.convert(application(), Application)
    after = msgspec.convert(all_but_one_host(), Application)
    records.create(before)
    records.change(after)
    epoch = records.state(NAME)
    records.change(after)
    assert records.state(NAME) == epoch
    store.close()


def test_the_command_changes_what_its_files_say_otherwise(
    cluster: Cluster, reporter: Reporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.client, "close", lambda: None)
    monkeypatch.setattr(definitions, "coordinator_client", lambda **_: cluster.client)
    (tmp_path / "logs.yaml").write_text(
        "kind: application\nname: logs\n"
        "sources:\n  - name: web\n    rule: {host_precise: {delayed_hosts_ppm: 50000}}\n"
        "    hosts: {registry: {lease: 60s}}\n"
        "operators:\n  - {name: sessions}\nsinks:\n  - {name: store}\n"
        "edges:\n  - [web, sessions]\n  - [sessions, store]\n"
    )
    refused = CliRunner().invoke(definitions.app, ["create", str(tmp_path)])
    assert isinstance(refused.exception, Refused)
    assert "--change" in str(refused.exception)
    done = CliRunner().invoke(definitions.app, ["create", "--change", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rule = cluster.client.application(NAME).definition["sources"][0]["rule"]
    assert rule["host_precise"] == {"delayed_hosts_ppm": 50_000}


# -- hosts that return --------------------------------------------------------------------------------------


class Columns:
    """A client that has host a on one partition, and says names once."""

    def __init__(self, cluster: Cluster, partition: int) -> None:
        self.cluster = cluster
        self.partition = partition
        self.sequence = self.told = 0
        self.epoch = cluster.client.application(NAME).epoch

    def say(self, *instants_ms: int, again: bool = False) -> dict[str, Any]:
        """Up to one instant, of host a."""
        self.sequence += 1
        begins = again or self.sequence == 1
        source = wire.SourceReport(
            "web",
            self.partition,
            0,
            hosts=("a",) if begins else (),
            hosts_from=0 if begins else 1,
            index=np.zeros(len(instants_ms), "<i4").tobytes(),
            latest_ms=np.array(instants_ms, "<i8").tobytes(),
        )
        client_id = f"reader-{self.partition}"
        batch = wire.ReportBatch(client_id, self.sequence, self.epoch, begins, (source,))
        response = self.cluster.http.post(
            f"/api/v1/applications/{NAME}/reports", content=msgspec.json.encode(batch)
        )
        answer: dict[str, Any] = response.json()
        return answer


def lease_ends(cluster: Cluster) -> None:
    cluster.clock.advance_ms(60_001)
    cluster.coordinator.tick()


def is_removed(cluster: Cluster) -> None:
    cluster.client.change_hosts(NAME, "web", "remove", ["a"])


@pytest.mark.parametrize("leaves", [lease_ends, is_removed])
def test_a_host_that_has_left_and_returned_between_two_reports_is_asked_for_again(
    cluster: Cluster, leaves: Callable[[Cluster], None]
) -> None:
    declared(cluster)
    registered(cluster, "a")
    stuck, other = Columns(cluster, 0), Columns(cluster, 1)
    stuck_ms = now(cluster, 50)
    stuck.say(stuck_ms)
    other.say(now(cluster, 10))
    assert global_ms(cluster) == stuck_ms
    leaves(cluster)
    registered(cluster, "a")
    assert stuck.say()["resend"], "nothing new of a, but what was told of it is forgotten"
    assert other.say(now(cluster))["resend"]
    assert not stuck.say(stuck_ms, again=True)["resend"]
    assert not other.say(now(cluster), again=True)["resend"]
    assert global_ms(cluster) == stuck_ms
    registered(cluster, "a")
    assert not stuck.say()["resend"], "its lease was renewed, no more"


# -- drains -------------------------------------------------------------------------------------------------


def test_a_drain_goes_on_under_the_next_leader(cluster: Cluster, reporter: Reporter) -> None:
    end_ms = now(cluster) + 1_000
    cluster.client.change_hosts(NAME, "web", "drain", ["a"], end_ms=end_ms)
    takeover(cluster)
    cluster.clock.advance_ms(5_000)
    reporter.progress(0, a=end_ms - 1, b=end_ms + 500)
    assert global_ms(cluster) == end_ms - 1, "it counts until it has been read to its end"
    assert cluster.client.application(NAME).hosts == {"web": 2}
    reporter.progress(0, a=end_ms)
    assert global_ms(cluster) == end_ms + 500, "it has left"
    assert cluster.client.application(NAME).hosts == {"web": 1}
    takeover(cluster)
    assert cluster.client.application(NAME).hosts == {"web": 1}


def test_a_drain_ends_at_its_time_although_the_leader_changes(cluster: Cluster, reporter: Reporter) -> None:
    cluster.client.change_hosts(NAME, "web", "drain", ["a"])
    cluster.clock.advance_ms(40_000)
    takeover(cluster)
    registered(cluster, "b")
    reporter.progress(0, b=now(cluster, 5))
    assert global_ms(cluster) == now(cluster, 40_020), "a has never been read by this leader"
    cluster.clock.advance_ms(19_999)
    cluster.coordinator.tick()
    assert cluster.client.application(NAME).hosts == {"web": 2}
    cluster.clock.advance_ms(1)
    cluster.coordinator.tick()
    assert cluster.client.application(NAME).hosts == {"web": 1}, "a minute after it was drained"


def test_a_drained_host_that_registers_again_is_listed_for_the_next_leader_too(
    cluster: Cluster, reporter: Reporter
) -> None:
    cluster.client.change_hosts(NAME, "web", "drain", ["a"], end_ms=now(cluster))
    registered(cluster, "a")
    takeover(cluster)
    reporter.progress(0, a=now(cluster), b=now(cluster))
    cluster.coordinator.tick()
    cluster.coordinator.tick()
    assert cluster.client.application(NAME).hosts == {"web": 2}


def test_kept_hosts_come_back_as_they_were() -> None:
    kept = ListedHosts(7, ("a", "b", "c"), (LeavingHost(0, None, 5), LeavingHost(2, 9, 10**13)))
    assert unpacked(packed(kept, "x"), "x") == kept
    assert unpacked(packed(ListedHosts(), "x"), "x") == unpacked(None, "x") == ListedHosts()


def test_where_leaving_hosts_do_not_fit_they_are_kept_as_listed() -> None:
    names = tuple(f"h{n}" for n in range(200_000))
    leaving = tuple(LeavingHost(n, n * 7_919 % 2**40, n * 104_729 % 2**41) for n in range(200_000))
    record = packed(ListedHosts(1, names, leaving), "x")
    assert len(record.names) + len(record.leaving) <= BYTES_MAX
    assert unpacked(record, "x") == ListedHosts(1, names)
