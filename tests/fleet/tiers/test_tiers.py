"""The three states of tiered topics, and where copying lags, of a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from rtolap.base.errors import Corrupted, Forbidden, NotFound
from rtolap.cli.fleet import tiers as command
from rtolap.cli.main import app
from rtolap.fleet.snapshot.model import UNKNOWN
from rtolap.fleet.tiers.collect import collect_tiers
from rtolap.fleet.tiers.copy_metrics import BULK_READ, TopicCopies, parse_copies
from rtolap.fleet.tiers.view import (
    UNLIMITED,
    CopyReadings,
    Tier,
    TierView,
    lagging,
    segments_behind,
    uncopied_bytes,
)
from rtolap.kafka.administration.values import (
    LOCAL_RETENTION_BYTES,
    LOCAL_RETENTION_MS,
    NO_BROKER,
    NO_OFFSET,
    REMOTE_COPY_DISABLED,
    REMOTE_STORAGE,
    REMOTE_STORAGE_SYSTEM,
    RETENTION_BYTES,
    RETENTION_MS,
    SEGMENT_BYTES,
    ConfigKind,
    ConfigResource,
    OffsetSpec,
    Partition,
)
from typer.testing import CliRunner

from tests.support.twins.administered_cluster import MemoryCluster
from tests.support.twins.administration import MemoryAdministration
from tests.support.twins.clock import ManualClock

SEGMENT = 1000
EVENTS, PLAIN = "events", "plain"
FIRST, SECOND = Partition(EVENTS, 0), Partition(EVENTS, 1)


def config(topic: str) -> ConfigResource:
    return ConfigResource(ConfigKind.TOPIC, topic)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster("tiered")
    for broker in (1, 2):
        made.add_broker(broker)
        made.configs[ConfigResource(ConfigKind.BROKER, str(broker))] = {REMOTE_STORAGE_SYSTEM: "true"}
    made.add_partition(FIRST, [1, 2], 600)
    made.add_partition(SECOND, [2, 1], 4500)
    made.add_partition(Partition(PLAIN, 0), [1], 900)
    made.inherited |= {
        RETENTION_MS: "604800000",
        RETENTION_BYTES: "-1",
        LOCAL_RETENTION_MS: "-2",
        LOCAL_RETENTION_BYTES: "-2",
        SEGMENT_BYTES: str(SEGMENT),
    }
    made.configs[config(EVENTS)] = {REMOTE_STORAGE: "true", LOCAL_RETENTION_MS: "3600000"}
    made.configs[config(PLAIN)] = {REMOTE_STORAGE: "false"}
    set_offsets(made, FIRST, 10, 40, 69, 100)
    set_offsets(made, SECOND, 0, 0, NO_OFFSET, 450)
    return made


def set_offsets(
    cluster: MemoryCluster, partition: Partition, earliest: int, local: int, tiered: int, latest: int
) -> None:
    cluster.partitions[partition].offsets = {
        OffsetSpec.EARLIEST: earliest,
        OffsetSpec.EARLIEST_LOCAL: local,
        OffsetSpec.LATEST_TIERED: tiered,
        OffsetSpec.LATEST: latest,
    }


def collected(cluster: MemoryCluster, *topics: str) -> TierView:
    return collect_tiers(MemoryAdministration(cluster), ManualClock(1234), topics or None)


def facts(view: TierView) -> list[str]:
    return [missing.fact for missing in view.missing]


def test_each_partition_has_three_ranges_and_the_bytes_on_disks(cluster: MemoryCluster) -> None:
    view = collected(cluster)
    assert (view.cluster_id, view.taken_at_ms) == ("tiered", 1234)
    assert (view.tiering, view.not_tiering) == ((1, 2), ())
    assert view.topics.names == (EVENTS, PLAIN)
    assert view.topics.tiered.tolist() == [True, False]
    assert view.topics.local_retention_ms.tolist() == [3_600_000, 604_800_000]
    assert view.topics.local_retention_bytes.tolist() == [UNLIMITED, UNLIMITED]
    assert view.partitions.topics.tolist() == [0, 0]
    assert view.partitions.leaders.tolist() == [1, 2]
    assert view.partitions.bounds.tolist() == [[10, 40, 70, 100], [0, 0, 0, 450]]
    assert view.partitions.offsets(Tier.REMOTE_ONLY).tolist() == [30, 0]
    assert view.partitions.offsets(Tier.LOCAL_AND_REMOTE).tolist() == [30, 0]
    assert view.partitions.offsets(Tier.LOCAL_ONLY).tolist() == [30, 450]
    assert view.partitions.local_bytes.tolist() == [600, 4500]
    assert view.partitions.replica_bytes.tolist() == [1200, 9000]
    assert view.missing == ()


def test_a_topic_that_is_not_there_is_an_error_and_only_named_ones_are_asked_for(
    cluster: MemoryCluster,
) -> None:
    assert collected(cluster, PLAIN).topics.names == (PLAIN,)
    assert len(collected(cluster, PLAIN).partitions) == 0
    with pytest.raises(NotFound, match="no topic absent"):
        collected(cluster, EVENTS, "absent")


def test_records_deleted_by_request_before_they_were_copied_are_in_no_state(cluster: MemoryCluster) -> None:
    set_offsets(cluster, FIRST, 50, 50, NO_OFFSET, 100)
    set_offsets(cluster, SECOND, 300, 300, 199, 450)
    assert collected(cluster).partitions.bounds.tolist() == [[50, 50, 50, 100], [300, 300, 300, 450]]


def test_a_new_leader_that_has_not_looked_at_remote_storage_leaves_the_state_unknown(
    cluster: MemoryCluster,
) -> None:
    set_offsets(cluster, FIRST, 10, 40, NO_OFFSET, 100)
    view = collected(cluster)
    assert view.partitions.bounds[0].tolist() == [UNKNOWN] * 4
    assert view.partitions.offsets(Tier.REMOTE_ONLY).tolist() == [UNKNOWN, 0]
    assert facts(view) == ["what was copied of events:0"]
    assert segments_behind(view).tolist()[0] == UNKNOWN
    assert not lagging(view)[0]


def test_what_brokers_do_not_tell_is_named_and_the_rest_is_told(cluster: MemoryCluster) -> None:
    cluster.brokers[2].silent = True
    cluster.partitions[FIRST].leader = NO_BROKER
    del cluster.configs[ConfigResource(ConfigKind.BROKER, "2")]
    view = collected(cluster)
    assert (view.tiering, view.not_tiering) == ((1,), (2,))
    assert view.partitions.local_bytes.tolist() == [UNKNOWN, UNKNOWN]
    assert view.partitions.replica_bytes.tolist() == [600, 4500]
    assert view.partitions.bounds[:, 3].tolist() == [UNKNOWN, 450]
    assert facts(view) == ["offsets of events:0", "bytes on the disks of broker 2"]
    cluster.forbidden.add("configs")
    with pytest.raises(Forbidden):
        collected(cluster)


def test_so_many_segments_are_behind_as_must_be_closed(cluster: MemoryCluster) -> None:
    """Of 4500 bytes the active segment has 1000 at most; of 600 it may have all."""
    view = collected(cluster)
    assert uncopied_bytes(view).tolist() == [300, 4500]
    assert segments_behind(view).tolist() == [0, 4]
    assert lagging(view, 4).tolist() == [False, True]
    assert lagging(view, 5).tolist() == [False, False]


@pytest.mark.parametrize(("local_bytes", "behind"), [(1, 0), (1000, 0), (1001, 1), (2000, 1), (2001, 2)])
def test_a_segment_is_closed_when_the_active_one_cannot_hold_it(
    cluster: MemoryCluster, local_bytes: int, behind: int
) -> None:
    cluster.remove_topic(EVENTS)
    cluster.add_partition(FIRST, [1], local_bytes)
    cluster.configs[config(EVENTS)] = {REMOTE_STORAGE: "true"}
    set_offsets(cluster, FIRST, 0, 0, NO_OFFSET, 77)
    assert segments_behind(collected(cluster)).tolist() == [behind]


def test_what_an_agent_counts_names_the_partition_with_most_that_is_not_copied(
    cluster: MemoryCluster,
) -> None:
    """Segments closed by time are small: no estimate by bytes finds them."""
    view = collected(cluster)

    def with_counts(*segments: int) -> TierView:
        columns = [np.array(segments, np.int64)] * 4
        topics, brokers = np.zeros(2, np.int32), np.array([1, 2], np.int32)
        return with_copies(view, CopyReadings(topics, brokers, *columns))

    assert lagging(with_counts(1, 1), 5).tolist() == [False, False]
    assert lagging(with_counts(5, 1), 5).tolist() == [True, False]


def with_copies(view: TierView, copies: CopyReadings) -> TierView:
    return TierView(
        view.cluster_id,
        view.taken_at_ms,
        view.tiering,
        view.not_tiering,
        view.topics,
        view.partitions,
        copies,
    )


def test_a_topic_whose_copying_is_switched_off_does_not_lag(cluster: MemoryCluster) -> None:
    cluster.configs[config(EVENTS)][REMOTE_COPY_DISABLED] = "true"
    view = collected(cluster)
    assert not view.topics.copied[0]
    assert not lagging(view, 1).any()


def agent_answer(broker: int, **beans: dict[str, float]) -> bytes:
    """name of a metric → topic → value"""
    answers = []
    for request in json.loads(BULK_READ)[:-1]:
        name = request["mbean"].partition("name=")[2].partition(",")[0]
        attribute = request["attribute"][0]
        value = {
            f"kafka.server:name={name},topic={topic},type=BrokerTopicMetrics": {attribute: found}
            for topic, found in beans.get(name, {}).items()
        }
        answers.append({"status": 200, "value": value} if value else {"status": 404, "error": "no bean"})
    ids = {f"kafka.server:id={broker},type=app-info": {"Version": "4.3.1"}}
    return json.dumps([*answers, {"status": 200, "value": ids}]).encode()


def test_an_agent_tells_lag_and_remote_bytes_by_topic() -> None:
    answer = agent_answer(1, RemoteCopyLagSegments={EVENTS: 3}, RemoteLogSizeBytes={EVENTS: 7000, "other": 5})
    assert parse_copies(answer, 1) == [
        TopicCopies(EVENTS, (3, UNKNOWN, 7000, UNKNOWN)),
        TopicCopies("other", (UNKNOWN, UNKNOWN, 5, UNKNOWN)),
    ]
    with pytest.raises(Corrupted, match="agent of broker"):
        parse_copies(answer, 2)
    with pytest.raises(Corrupted):
        parse_copies(b"[]", 1)


@pytest.fixture
def opened(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    @contextmanager
    def open_memory(name: str) -> Iterator[MemoryAdministration]:
        yield MemoryAdministration(cluster)

    monkeypatch.setattr(command, "open_administration", open_memory)
    monkeypatch.delenv("RTOLAP_FLEET_SOURCES", raising=False)
    return cluster


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["fleet", "tiers", *arguments])


def test_the_command_sums_tiered_topics_and_names_what_lags(opened: MemoryCluster) -> None:
    told = run()
    assert told.exit_code == 3
    header, row, *_ = told.stdout.splitlines()
    values = dict(zip(header.split("\t"), row.split("\t"), strict=True))
    assert values["topic"] == EVENTS
    assert [values[name] for name in ("remote only", "local and remote", "local only")] == ["30", "30", "480"]
    assert (values["segments_behind"], values["lagging"]) == ("4", "1")
    assert "events:1: copying lags: 4 closed segments or more, about 4500 bytes" in told.stderr
    assert PLAIN not in told.output
    assert run("--behind", "5").exit_code == 0


def test_the_command_tells_ranges_of_the_partitions_of_a_topic(opened: MemoryCluster) -> None:
    told = run(EVENTS, "--behind", "9")
    assert told.exit_code == 0
    assert "events:0\t1\t10–40\t40–70\t70–100\t600\t1200\t300\t0" in told.stdout
    document = json.loads(run(EVENTS, PLAIN, "--json").stdout)
    first = document["topics"][0]["partitions"][0]
    assert (first["remote_only"], first["local_and_remote"], first["local_only"]) == (
        [10, 40],
        [40, 70],
        [70, 100],
    )
    assert document["topics"][0]["lagging"] == [1]
    assert [topic["tiered"] for topic in document["topics"]] == [True, False]


def test_topics_and_clusters_without_tiers_say_so(opened: MemoryCluster) -> None:
    told = run(PLAIN)
    assert told.exit_code == 0
    assert "plain is not tiered (remote.storage.enable)" in told.output
    opened.remove_topic(EVENTS)
    for broker in (1, 2):
        opened.configs[ConfigResource(ConfigKind.BROKER, str(broker))] = {}
    told = run()
    assert told.exit_code == 0
    assert "no topic of cluster tiered is tiered" in told.output
    assert "brokers without tiered storage (remote.log.storage.system.enable): 1, 2" in told.output
    assert json.loads(run("--json").stdout)["topics"] == []
    assert isinstance(run("absent").exception, NotFound)
