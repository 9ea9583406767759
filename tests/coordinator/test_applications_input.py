"""Bad input for applications: told, counted by the application, and without effect."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from rtolap.base.errors import DefinitionError, NotFound, Refused, Unavailable
from rtolap.coordinator.applications import units
from rtolap.coordinator.applications.limits import (
    NAME_MAX,
    NUMBER_MAX,
    PARTITIONS_MAX,
    UNITS_BYTES_MAX,
)
from rtolap.protocols.watermark import messages as wire
from rtolap.protocols.watermark.messages import HOSTS_MAX
from rtolap.watermark.forgetting import SILENT_MS
from rtolap.watermark_client.client import WatermarkClient

from tests.support.cubes.coordinator_harness import HOUR_MS, TOKEN, Cluster
from tests.support.cubes.metadata_contract import eventually
from tests.support.watermarks.application_reports import (
    NAME,
    Reporter,
    application,
    counters,
    declared,
    now,
    registered,
)

REPORTS = f"/api/v1/applications/{NAME}/reports"


@pytest.fixture
def reporter(cluster: Cluster) -> Reporter:
    """Hosts a and b have been read up to ten and twenty ms ago, one unit has work of 15 ms ago."""
    found = declared(cluster)
    registered(cluster, "a", "b")
    found.progress(0, a=now(cluster, 10), b=now(cluster, 20))
    found.send(units=[{"level": "sessions", "processor": "p", "oldest_work_ms": now(cluster, 15)}])
    return found


def standing(cluster: Cluster) -> dict[str, Any]:
    """Everything that input may change, but for the counters."""
    cluster.coordinator.tick()
    info = cluster.client.application(NAME)
    marks = cluster.client.application_watermarks(NAME)
    hosts = cluster.client.application_hosts(NAME)
    return {
        "definition": info.definition,
        "epoch": info.epoch,
        "clients": info.clients,
        "units": cluster.client.application_units(NAME).model_dump(),
        "levels": {name: (one.input_ms, one.output_ms) for name, one in marks.levels.items()},
        "global": marks.global_ms,
        "behind": hosts.behind,
        "list": (hosts.list_epoch, hosts.counting),
        "awaited": hosts.awaited_partitions,
    }


@pytest.mark.parametrize(
    ("ahead_ms", "counter", "said"),
    [
        (2_000_000, "in_future", "2000000 ms ahead of the clock; expected at most 60000 ms"),
        (8 * HOUR_MS - 500, "wrong_zone", "8 whole hours ahead: does it log local time as UTC?"),
        (10**30, "in_future", "ahead of the clock; expected at most 60000 ms"),
        (-(10**13), "negative", "before 1970"),
        (-(10**30), "negative", "before 1970"),
    ],
)
def test_an_instant_that_cannot_be_changes_nothing(
    cluster: Cluster, reporter: Reporter, ahead_ms: int, counter: str, said: str
) -> None:
    before = standing(cluster)
    [refusal] = reporter.progress(0, a=now(cluster) + ahead_ms)["refused"]
    assert "(a)" in refusal["what"]
    assert said in refusal["why"]
    assert (counters(cluster)[counter], counters(cluster)["refused_entries"]) == (1, 1)
    assert standing(cluster) == before
    reporter.progress(0, a=now(cluster) + ahead_ms, b=now(cluster, 5))
    reporter.send(units=[{"level": "sessions", "processor": "p", "left": True}])
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == now(cluster, 10), "b alone has moved"


def test_a_host_some_hours_behind_is_told_that_its_zone_may_be_wrong(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a")
    reporter.progress(0, a=now(cluster, 8 * HOUR_MS - 700))
    [behind] = cluster.client.application_hosts(NAME).behind
    assert behind.hint == "8 whole hours behind: does it log local time as UTC?"


def test_an_unknown_host_changes_nothing(cluster: Cluster, reporter: Reporter) -> None:
    before = standing(cluster)
    [refusal] = reporter.progress(0, stranger=now(cluster))["refused"]
    assert "not in the host list (from registry)" in refusal["why"]
    assert (counters(cluster)["unknown_hosts"], counters(cluster)["refused_entries"]) == (1, 1)
    assert standing(cluster) == before


def test_an_unknown_host_is_asked_for_again_once_it_is_listed(cluster: Cluster) -> None:
    declared(cluster)
    registered(cluster, "a")
    with WatermarkClient(
        ["http://testserver"], TOKEN, NAME, every_s=3600, transport=cluster.http._transport
    ) as client:
        client.report_progress("web", 0, 0, ["a", "stranger"], [now(cluster, 5), now(cluster, 9)])
        client.flush()
        assert client.refused_entries == 1
        assert "stranger" in client.last_refused[0].what
        registered(cluster, "stranger")
        client.flush()
        cluster.coordinator.tick()
        assert cluster.client.application_watermarks(NAME).global_ms == now(cluster, 9)


@pytest.mark.parametrize(
    ("unit", "counter", "said"),
    [
        ({"level": "nowhere", "processor": "p"}, "unknown_levels", "one of sessions, store, web"),
        ({"level": "store", "processor": ""}, "unknown_units", "1 to 200 characters"),
        ({"level": "store", "processor": "p", "key_group": -1}, "unknown_units", "count from 0"),
        ({"level": "store", "processor": "p", "oldest_work_ms": -1}, "negative", "before 1970"),
        ({"level": "store", "processor": "p", "oldest_work_ms": 10**15}, "in_future", "after the year 9999"),
        ({"level": "store", "processor": "p", "oldest_work_ms": 10**30}, "in_future", "after the year 9999"),
    ],
)
def test_a_unit_without_sense_changes_nothing(
    cluster: Cluster, reporter: Reporter, unit: dict[str, Any], counter: str, said: str
) -> None:
    before = standing(cluster)
    [refusal] = reporter.send(units=[unit])["refused"]
    assert said in refusal["why"]
    assert (counters(cluster)[counter], counters(cluster)["refused_entries"]) == (1, 1)
    assert standing(cluster) == before


def test_a_unit_beyond_the_bound_is_refused_and_the_rest_of_its_batch_taken(
    cluster: Cluster, reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "UNITS_MAX", 1)
    source = {"level": "web", "partition": 0, "generation": 0, "progress": {"b": now(cluster, 11)}}
    known = {"level": "sessions", "processor": "p", "oldest_work_ms": now(cluster, 12)}
    [refusal] = reporter.send(units=[{**known, "processor": "more"}, known], sources=[source])["refused"]
    assert refusal["what"] == "sessions/more/0"
    assert "too many units" in refusal["why"]
    assert counters(cluster)["too_many_units"] == 1
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == now(cluster, 12)


def test_units_whose_names_no_node_holds_are_refused_and_the_application_goes_on(
    cluster: Cluster, reporter: Reporter
) -> None:
    wide = "\U0001f40d" * NAME_MAX  # four bytes a character
    unit = {"level": "sessions", "processor": wide, "generation": 1}
    many = [{**unit, "key_group": number} for number in range(2_000)]
    refused = reporter.send(units=many)["refused"]
    known = cluster.client.application(NAME).units - 1
    assert 700 < known < 1_000
    assert len(refused) == counters(cluster)["too_many_units"] == 2_000 - known
    assert f"with names of {UNITS_BYTES_MAX} bytes" in refused[0]["why"]
    again = [{**unit, "key_group": number, "generation": NUMBER_MAX} for number in range(known)]
    assert reporter.send(units=again)["refused"] == [], "owners may change"
    reporter.progress(0, a=now(cluster), b=now(cluster))
    reporter.send(units=[{"level": "sessions", "processor": "p", "left": True}, {**again[0], "left": True}])
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == now(cluster)
    assert len(reporter.send(units=many[-9:])["refused"]) in (7, 8), "what has left makes room"


@pytest.fixture
def two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtolap.coordinator.applications.source_reports.HOSTS_MAX", 2)
    monkeypatch.setattr("rtolap.watermark_client.pending.HOSTS_MAX", 2)


def reporting(cluster: Cluster) -> WatermarkClient:
    return WatermarkClient(
        ["http://testserver"], TOKEN, NAME, every_s=0.05, transport=cluster.http._transport
    )


@pytest.mark.usefixtures("two_names")
def test_a_new_host_is_reported_although_all_names_were_used_up(cluster: Cluster) -> None:
    declared(cluster)
    registered(cluster, "b", "c")
    with reporting(cluster) as client:
        client.report_progress("web", 0, 0, ["a", "b"], [now(cluster, SILENT_MS + 9), now(cluster, 8)])
        client.flush()
        client.report_progress("web", 1, 0, ["c"], [now(cluster, 8)])
        client.set_oldest_work("sessions", "p", 0, now(cluster, 70))
        client.flush()
        cluster.coordinator.tick()
        assert cluster.client.application_watermarks(NAME).global_ms == now(cluster, 70)
        client.report_progress("web", 0, 0, ["a"], [now(cluster, 7)])
        client.report_progress("web", 1, 0, ["b", "c"], [now(cluster, 6)] * 2)
        eventually(lambda: "names too many hosts" in str(client.problem), "three live ones are too many")
        client.close(timeout_s=0)


@pytest.mark.usefixtures("two_names")
def test_units_are_known_although_what_is_said_of_a_source_is_refused(cluster: Cluster) -> None:
    declared(cluster)
    with reporting(cluster) as client:
        client.set_oldest_work("sessions", "leaver", 0, 4)
        client.flush()
        client.report_progress("web", 0, 0, ["a", "b", "c"], [now(cluster)] * 3)
        client.set_oldest_work("sessions", "p", 0, 5)
        client.leave("sessions", "leaver")

        def known() -> list[tuple[str, int | None]]:
            units = cluster.client.application_units(NAME).units
            return [(one.processor, one.oldest_work_ms) for one in units]

        eventually(lambda: known() == [("p", 5)], "one is known, the other has left")
        eventually(lambda: "names too many hosts" in str(client.problem), "and the source is refused")
        with pytest.raises(Unavailable):
            client.flush(timeout_s=0.3)
        assert not client.has_taken("web", 0, 0)
        client.close(timeout_s=0)


def test_an_approval_without_end_is_refused_and_what_is_kept_fits_a_node(
    cluster: Cluster, reporter: Reporter
) -> None:
    before = standing(cluster)
    for by, reason in (("ann", "x" * 2_000_000), ("a" * 201, "why")):
        with pytest.raises(DefinitionError, match="at most 200") as refusal:
            cluster.client.approve_windows(NAME, 7, by, reason)
        assert len(str(refusal.value)) < 500
    assert standing(cluster) == before
    longest = "\0" * wire.REASON_MAX  # six bytes a character
    for until_ms in (9, *range(70)):
        info = cluster.client.approve_windows(NAME, until_ms, "ann", longest)
    assert [one.until_ms for one in info.approvals] == [*range(70 - len(info.approvals), 70)]
    assert len(info.approvals) > 50
    reporter.progress(0, a=now(cluster), b=now(cluster))
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).approved_until_ms == 69


@pytest.mark.parametrize(
    ("source", "counter", "said"),
    [
        ({"level": "wep", "partition": 0, "generation": 0}, "unknown_levels", "one of web"),
        ({"partition": PARTITIONS_MAX, "generation": 0}, "unknown_partitions", "up to 10000"),
        ({"partition": -1, "generation": 0}, "unknown_partitions", "count from 0"),
        (
            {"partition": 1, "generation": 0, "partitions": PARTITIONS_MAX + 1},
            "unknown_partitions",
            "up to 10000",
        ),
        ({"partition": 0, "generation": -1}, "unknown_partitions", "generations count from 0"),
        ({"partition": 0, "generation": 10**30}, "unknown_partitions", "generations count from 0"),
    ],
)
def test_a_report_of_what_there_is_not_changes_nothing(
    cluster: Cluster, reporter: Reporter, source: dict[str, Any], counter: str, said: str
) -> None:
    before = standing(cluster)
    told = {"level": "web", "progress": {"a": now(cluster), "b": now(cluster)}, **source}
    [refusal] = reporter.send(sources=[told])["refused"]
    assert said in refusal["why"]
    assert (counters(cluster)[counter], counters(cluster)["refused_entries"]) == (1, 1)
    assert standing(cluster) == before


def told(partition: int, hosts: str, hosts_from: int, index: list[int], at_ms: int) -> wire.SourceReport:
    """Names of one letter; of the session's hosts at `index` how far they were read."""
    return wire.SourceReport(
        "web",
        partition,
        0,
        tuple(hosts),
        hosts_from,
        np.array(index, "<i4").tobytes(),
        np.full(len(index), at_ms, "<i8").tobytes(),
    )


@pytest.mark.parametrize("wrong", [{"partition": -1}, {"generation": -1}, {"progress": {"stranger": 1}}])
def test_the_names_of_a_refused_report_keep_their_places(cluster: Cluster, wrong: dict[str, Any]) -> None:
    """What comes after it in the batch, and in later ones, means the hosts that it means to the client."""
    declared(cluster)
    registered(cluster, *"abcde")
    epoch = cluster.client.application(NAME).epoch

    def send(sequence: int, *sources: wire.SourceReport) -> list[dict[str, str]]:
        batch = wire.ReportBatch("c2", sequence, epoch, sequence == 1, sources)
        answer = cluster.http.post(REPORTS, content=msgspec.json.encode(batch))
        assert answer.status_code == 200, answer.text
        assert not answer.json()["resend"]
        refused: list[dict[str, str]] = answer.json()["refused"]
        return refused

    def read() -> dict[str, int | None]:
        return {one.host: one.behind_ms for one in cluster.client.application_hosts(NAME).behind}

    first = msgspec.structs.replace(told(0, "ab", 0, [0, 1], now(cluster)), **wrong)
    assert len(send(1, first, told(0, "cde", 2, [2, 3, 4], now(cluster, 3)))) == 1
    cluster.coordinator.tick()
    assert read() == {"a": None, "b": None, "c": 3, "d": 3, "e": 3}
    assert send(2, told(0, "", 5, [0, 1], now(cluster, 2)), told(0, "", 5, [2, 3], now(cluster, 1))) == []
    cluster.coordinator.tick()
    assert read() == {"a": 2, "b": 2, "c": 1, "d": 1, "e": 3}


def packed(**source: Any) -> bytes:
    """A batch that would move host a to the clock of these tests, but for what `source` says."""
    told = {
        "level": "web",
        "partition": 0,
        "generation": 0,
        "hosts": ("a",),
        "index": np.zeros(1, "<i4").tobytes(),
        "latest_ms": np.full(1, 10**12, "<i8").tobytes(),
        **source,
    }
    report = msgspec.convert(told, wire.SourceReport)
    return msgspec.json.encode(wire.ReportBatch("c2", 1, 0, True, (report,)))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\xff\xff", "not a batch of reports"),
        (b"[" * 100_000, "not a batch of reports"),
        (b'{"client_id": "c", "sequence": 1, "extra": 1}', "extra"),
        (b'{"client_id": "", "sequence": 1}', "without a sender"),
        (b'{"client_id": "c", "sequence": -1}', "without a sender"),
        (packed(index=b"\0"), "is cut off"),
        (packed(latest_ms=b""), "differ in length"),
        (packed(events=np.zeros(2, "<i8").tobytes()), "differ in length"),
        (packed(events=np.full(1, -1, "<i8").tobytes()), "events of web/0 has a negative entry"),
        (packed(index=np.full(1, -1, "<i4").tobytes()), "index of web/0 has a negative entry"),
        (packed(hosts=("a b",)), "is not the name of a host"),
        (packed(hosts_from=HOSTS_MAX), "names too many hosts"),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused_whole(
    cluster: Cluster, reporter: Reporter, body: bytes, said: str
) -> None:
    before = standing(cluster)
    answer = cluster.http.post(REPORTS, content=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "definition")
    assert said in answer.json()["message"]
    assert counters(cluster)["refused_batches"] == 1
    assert standing(cluster) == before


def test_an_oversized_report_is_refused_at_the_endpoint_and_counted(
    cluster: Cluster, reporter: Reporter
) -> None:
    before = standing(cluster)
    answer = cluster.http.post(REPORTS, content=b" " * (wire.REPORT_BYTES_MAX + 1))
    assert (answer.status_code, answer.json()["code"]) == (422, "definition")
    assert f"expected at most {wire.REPORT_BYTES_MAX} bytes" in answer.json()["message"]
    assert counters(cluster)["oversized_batches"] == 1
    assert standing(cluster) == before


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"action": "register", "hosts": ["a b"]}, DefinitionError, "not the name of a host"),
        ({"action": "register", "hosts": [f"h{n}" for n in range(HOSTS_MAX)]}, DefinitionError, "too many"),
        ({"action": "remove", "hosts": ["a", "nobody"]}, NotFound, "1 hosts are not in the list"),
        ({"action": "drain", "hosts": ["a"], "end_ms": 10**30}, DefinitionError, "no instant"),
        ({"action": "drain", "hosts": ["a"], "end_ms": -1}, DefinitionError, "no instant"),
        ({"action": "register", "hosts": ["c"], "level": "wep"}, DefinitionError, "one of web"),
    ],
)
def test_a_change_of_hosts_without_sense_changes_nothing(
    cluster: Cluster, reporter: Reporter, change: dict[str, Any], error: type[Exception], said: str
) -> None:
    before = standing(cluster)
    with pytest.raises(error, match=said):
        cluster.client.change_hosts(NAME, **{"level": "web", **change})
    assert counters(cluster)["refused_host_changes"] == 1
    assert standing(cluster) == before


@pytest.mark.parametrize("action", ["register", "renew", "drain", "remove"])
def test_a_host_that_is_named_twice_is_changed_once(
    cluster: Cluster, reporter: Reporter, action: str
) -> None:
    changed = cluster.client.change_hosts(NAME, "web", action, ["a", "a"])
    assert changed.counting == (1 if action == "remove" else 2)
    assert "refused_host_changes" not in counters(cluster)


def test_a_host_list_that_no_node_holds_changes_nothing(cluster: Cluster, reporter: Reporter) -> None:
    before = standing(cluster)
    drawn = random.Random(1)
    names = [drawn.randbytes(125).hex() for _ in range(8_000)]  # four bits a digit: no compression helps
    with pytest.raises(Refused, match="the host list of logs/web is too large"):
        cluster.client.change_hosts(NAME, "web", "register", names)
    assert counters(cluster)["refused_host_changes"] == 1
    assert standing(cluster) == before


def test_of_two_applications_with_one_name_the_first_stands(cluster: Cluster, reporter: Reporter) -> None:
    before = standing(cluster)
    cluster.client.create_application(application())  # the same: nothing to do
    with pytest.raises(Refused, match="another definition"):
        cluster.client.create_application(application(heartbeat_ms=1000))
    assert counters(cluster)["refused_definitions"] == 1
    assert standing(cluster) == before


def test_a_topology_that_cannot_be_is_refused(cluster: Cluster, reporter: Reporter) -> None:
    before = standing(cluster)
    cycle, astray = application(), application()
    cycle["operators"].append({"name": "back"})
    cycle["edges"] += [["sessions", "back"], ["back", "sessions"]]
    astray["edges"].append(["web", "shop"])
    for number, (wrong, said) in enumerate(((cycle, "a cycle"), (astray, "no such level"))):
        with pytest.raises(DefinitionError, match=said):
            cluster.client.create_application({**wrong, "name": "other"})
        with pytest.raises(DefinitionError, match=said):
            cluster.client.change_application(NAME, wrong)
        assert counters(cluster)["refused_definitions"] == number + 1
    assert cluster.client.applications() == [NAME]
    assert standing(cluster) == before
    with pytest.raises(NotFound):
        cluster.client.application_watermarks("other")


def test_a_question_about_a_year_beyond_the_calendar_is_refused(cluster: Cluster, reporter: Reporter) -> None:
    answer = cluster.http.get(f"/api/v1/applications/{NAME}/explain", params={"window_end_ms": str(10**30)})
    assert answer.status_code == 422
