"""Offsets that receivers have to read and Kafka no longer holds, over REST and on the command line."""

from __future__ import annotations

import json

import msgspec
import pytest
from rtolap.base.errors import Corrupted, NotFound, Refused
from rtolap.cli.cubes import segments as segments_commands
from rtolap.cubes.format.manifest import MANIFEST_NAME, HistoryManifest, decode
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.segments import close
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentRange
from rtolap.protocols.coordinator.messages import CubeReport, HeartbeatRequest, PartitionRange
from typer.testing import CliRunner, Result

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster, assert_columns_as_listed

LOST = {"partition": 1, "start": 15, "end": 40}


def closed(cluster: Cluster, hour: int = 2) -> SegmentRecord:
    """Closed and not uploaded: offsets up to 100 beyond where each partition begins."""
    window = SegmentRange(hour * HOUR_MS, (hour + 1) * HOUR_MS)
    return cluster.metadata.update_segment(
        NAME,
        window,
        lambda record: close(record, {p: 10 * p + 100 for p in range(4)}, now_ms=1, by="rs1"),
    )


def tell(cluster: Cluster, state: str = "FAILED", *lost: PartitionRange) -> None:
    report = CubeReport(state=state, reason="no longer holds offset 15", assignment_epoch=1, lost=lost)
    cluster.client.heartbeat(HeartbeatRequest(receiver_id="r1", replica_set="rs1", cubes={NAME: report}))


def lose(cluster: Cluster) -> SegmentRecord:
    cluster.enabled()
    record = closed(cluster)
    cluster.topics.logs["clicks"][1] = (40, 1000)
    tell(cluster, "FAILED", PartitionRange(**LOST))
    return record


def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.setattr(cluster.client, "close", lambda: None)
    monkeypatch.setattr(segments_commands, "coordinator_client", lambda: cluster.client)
    return CliRunner().invoke(segments_commands.app, arguments, env={"COLUMNS": "300"})


def test_what_is_lost_stands_beside_the_segment_and_the_cube(cluster: Cluster) -> None:
    record = lose(cluster)
    assert_columns_as_listed(cluster.client, NAME)
    assert [one.model_dump() for one in cluster.client.segment(NAME, record.name).lost] == [LOST]
    problem = cluster.client.cube(NAME).problem or ""
    assert "offsets 15–40 of partition 1" in problem
    assert f"rtolap segments accept-loss {NAME} {record.name} --reason" in problem
    assert "rs1" in problem


def test_a_loss_is_accepted_on_the_command_line(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    record = lose(cluster)
    assert "IMMUTABLE, events lost" in run(cluster, monkeypatch, "list", NAME).stdout
    shown = run(cluster, monkeypatch, "show", NAME, record.name).stdout
    assert "15–40 of partition 1, which nobody holds any more" in shown
    accept = ("accept-loss", NAME, record.name, "--reason", "disk burnt")
    said = run(cluster, monkeypatch, *accept, "--by", "ada", "--json")
    assert said.exit_code == 0, said.output
    answer = json.loads(said.stdout)
    (loss,) = answer["losses"]
    assert (loss["ranges"], loss["by"], loss["reason"]) == ([LOST], "ada", "disk burnt")
    assert answer["lost"] == []
    assert "accepted by ada" in run(cluster, monkeypatch, "show", NAME, record.name).stdout
    assert run(cluster, monkeypatch, *accept).exit_code == 0, "a repetition"
    assert len(cluster.metadata.control(NAME).losses) == 1
    problem = cluster.client.cube(NAME).problem or ""
    assert "accept-loss" not in problem


def test_nothing_is_accepted_where_nothing_is_lost(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.enabled()
    record = closed(cluster)
    with pytest.raises(Refused, match="lost"):
        cluster.client.accept_loss(NAME, record.name, "ada", "why not")
    refused = run(cluster, monkeypatch, "accept-loss", NAME, record.name, "--reason", "why not")
    assert isinstance(refused.exception, Refused)
    assert run(cluster, monkeypatch, "accept-loss", NAME, record.name).exit_code == 2, "a reason is asked for"
    with pytest.raises(NotFound):
        cluster.client.accept_loss(NAME, "19700101000000_19700101000001", "ada", "no such segment")
    assert cluster.metadata.control(NAME).losses == ()


def test_the_token_is_asked_for(cluster: Cluster) -> None:
    record = lose(cluster)
    path = f"/api/v1/cubes/{NAME}/segments/{record.name}/accept-loss"
    body = {"by": "mallory", "reason": "none"}
    assert cluster.http.post(path, json=body, headers={"Authorization": ""}).status_code == 401
    assert cluster.http.post(path, json={"by": "ada"}).status_code == 422


def test_a_segment_that_is_open_yet_can_be_let_go(cluster: Cluster) -> None:
    lose(cluster)
    later = SegmentRange(5 * HOUR_MS, 6 * HOUR_MS)
    cluster.client.accept_loss(NAME, later.name, "ada", "disk burnt")
    (loss,) = cluster.metadata.control(NAME).losses
    assert loss.start_ms == 2 * HOUR_MS, "the closed segment that waits lacks them too"
    assert loss.overlaps(later.start_ms, later.end_ms)


def test_segments_that_were_uploaded_whole_lack_nothing(cluster: Cluster) -> None:
    cluster.enabled()
    whole = cluster.closed(3)
    record = closed(cluster)
    tell(cluster, "FAILED", PartitionRange(**LOST))
    cluster.client.accept_loss(NAME, record.name, "ada", "disk burnt")
    assert cluster.client.segment(NAME, whole.name).losses == ()
    assert cluster.client.segment(NAME, record.name).losses


def test_the_manifest_says_what_a_version_lacks(cluster: Cluster) -> None:
    record = lose(cluster)
    cluster.client.accept_loss(NAME, record.name, "ada", "disk burnt")
    cluster.closed(2)  # uploaded, with what is left
    wrong = cluster.build(record.name, losses=())
    with pytest.raises(Corrupted, match="losses"):
        cluster.client.promote(NAME, record.name, wrong)
    ready = cluster.client.promote(NAME, record.name, cluster.build(record.name))
    assert ready.state == "READY"
    stored = cluster.metadata.segment(NAME, record.name)
    assert stored is not None
    path = f"{stored.location}/{MANIFEST_NAME}"
    manifest = decode(cluster.files.read(path), HistoryManifest, path)
    (loss,) = manifest.losses
    assert (loss.ranges, loss.by) == ((PartRange(1, 15, 40),), "ada")
    assert [msgspec.convert(one.model_dump(), type(loss)) for one in ready.losses] == [loss]


def test_a_receiver_that_reads_again_takes_the_loss_back(cluster: Cluster) -> None:
    record = lose(cluster)
    tell(cluster, "CONSUMING")
    assert cluster.client.segment(NAME, record.name).lost == ()
    assert "accept-loss" not in (cluster.client.cube(NAME).problem or "")
