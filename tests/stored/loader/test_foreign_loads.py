"""A loader over its clients and stand-ins for Doris and StarRocks, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rtolap.base.settings import Settings
from rtolap.model.loader import LoaderColumn, LoaderSink, SinkBackends, SinkMerge
from rtolap.protocols.stream_load.messages import LoadState, SchemaColumn, TableSchema
from rtolap.stored.loader.assembly import sink_of
from rtolap.stored.loader.job import read_config
from rtolap.stored.loader.states import StopCause

from tests.support.foreign.cluster import ForeignCluster
from tests.support.foreign.servers import PASSWORD, USER, Cut, ForeignServers, Kind, foreign_servers
from tests.support.loader.stepped_loader import World, load_all, stopped_by

KINDS: tuple[Kind, ...] = ("doris", "starrocks")
COLUMNS = (SchemaColumn("k", "BIGINT"), SchemaColumn("v", "BIGINT"))


class Foreign:
    """The world of a stepped loader, whose sink is a cluster of `kind`, over sockets."""

    def __init__(self, world: World, kind: Kind, folder: Path, closing: ExitStack) -> None:
        self.world = world
        self.cluster = ForeignCluster(world.clock.now_ms, labels_max=100, label_kept_ms=10**9)
        self.cluster.tables["d", "t"] = TableSchema(keys_type="DUP_KEYS", properties=COLUMNS)
        self.servers: ForeignServers = closing.enter_context(foreign_servers(kind, self.cluster))
        self._kind, self._closing = kind, closing
        self._password = folder / "password"
        self._password.write_text(PASSWORD)

    def create(self, **changes: Any) -> None:
        columns = changes.pop("columns", ())
        sink = LoaderSink(
            urls=self.servers.urls,
            target=self._kind,
            format="json",
            user=changes.pop("user", USER),
            password_file=str(self._password),
            **changes,
        )
        self.world.create(sink=sink, columns=columns)
        loader = read_config(self.world.jobs.get("j")).loader
        self.world.sink = self._closing.enter_context(sink_of(loader, Settings()))

    def keys(self) -> list[int]:
        return sorted(row["k"] for row in self.cluster.rows("d", "t"))


@pytest.fixture(params=KINDS)
def foreign(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Iterator[Foreign]:
    with ExitStack() as closing:
        yield Foreign(world, request.param, tmp_path, closing)


@pytest.mark.parametrize("two_phase", [False, True])
def test_records_are_loaded_once(foreign: Foreign, two_phase: bool) -> None:
    foreign.create(two_phase=two_phase)
    foreign.world.produce(1, 2, 3, 4)
    load_all(foreign.world.start())
    assert foreign.keys() == [1, 2, 3, 4]


@pytest.mark.parametrize("two_phase", [False, True])
def test_a_batch_whose_answer_is_lost_is_not_loaded_twice(foreign: Foreign, two_phase: bool) -> None:
    foreign.create(two_phase=two_phase)
    foreign.world.produce(1, 2)
    work = foreign.world.start()
    work.source.step(0.0)
    requests = 0

    def cut(server: str, path: str) -> Cut | None:
        """Each request of the backend loses its answer once, one after the other."""
        nonlocal requests
        requests += server == "be"
        return "after" if server == "be" and requests % 2 else None

    foreign.servers.cut = cut
    load_all(work, rounds=60)
    foreign.servers.cut = lambda server, path: None
    load_all(work)
    assert foreign.keys() == [1, 2]
    assert requests > 1


def test_a_committed_batch_counts_once_it_is_visible(foreign: Foreign) -> None:
    """Labels are dropped in the order in which loads become visible: one that is not is no witness."""
    foreign.create()
    foreign.world.produce(1, 2)
    foreign.cluster.publishes_late = True
    work = foreign.world.start()
    load_all(work)
    record = foreign.world.records.all("j")[-1]
    assert (record.attempts, record.loaded) == (1, False)
    foreign.cluster.publish()
    load_all(work)
    record = foreign.world.records.all("j")[-1]
    assert (record.attempts, record.loaded, foreign.keys()) == (1, True, [1, 2])


def test_a_committed_batch_stays_loaded_though_its_label_is_dropped(foreign: Foreign) -> None:
    foreign.create()
    foreign.world.produce(1, 2)
    foreign.cluster.publishes_late = True
    work = foreign.world.start()
    load_all(work)
    foreign.cluster.publish()
    foreign.cluster.use_labels("d", 200)
    load_all(work)
    assert foreign.cluster.state("d", foreign.world.records.all("j")[-1].label) is LoadState.UNKNOWN
    assert foreign.world.records.all("j")[-1].loaded
    assert foreign.keys() == [1, 2]


def test_headers_sequence_and_merge_reach_the_backend(foreign: Foreign) -> None:
    kind = foreign.servers.kind
    doris = {
        "merge": SinkMerge("merge", "op='d'"),
        "backends": SinkBackends(redirect_policy="public"),
        "headers": {"partitions": "p1", "send_batch_parallelism": "2"},
    }
    starrocks = {"headers": {"partitions": "p1", "partial_update": "true"}}
    foreign.create(
        sequence_column="v",
        columns=(LoaderColumn("op", type="string"),),
        **(doris if kind == "doris" else starrocks),  # type: ignore[arg-type]
    )
    foreign.world.produce(1, 2)
    load_all(foreign.world.start())
    last = [seen.headers for seen in foreign.servers.seen_by("be") if "partitions" in seen.headers][-1]
    assert (last["columns"], last["partitions"]) == ("`k`,`v`,`op`", "p1")
    if kind == "doris":
        assert (last["function_column.sequence_col"], last["merge_type"], last["delete"]) == (
            "v",
            "MERGE",
            "op='d'",
        )
        assert last["redirect-policy"] == "public"
        assert last["read_json_by_line"] == "true"
    else:
        assert (last["merge_condition"], last["strip_outer_array"]) == ("v", "false")


def test_a_wrong_user_stops_the_job_by_name(foreign: Foreign) -> None:
    foreign.create(user="somebody")
    assert stopped_by(foreign.world.start) is StopCause.SINK_REFUSES
    assert "sink.password_file" in foreign.world.jobs.get("j").reason


def test_an_unknown_table_stops_the_job_by_name(foreign: Foreign) -> None:
    foreign.create()
    del foreign.cluster.tables["d", "t"]
    assert stopped_by(foreign.world.start) is StopCause.TABLE_UNUSABLE
    assert "`database` and `table`" in foreign.world.jobs.get("j").reason
