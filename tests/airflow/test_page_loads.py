"""Views of stored tables, loads and loaders: from a front end over real sockets, and from what agents say."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from rtolap.airflow.declared import RunningLoader, loader_labels
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.page.rights import asker, reader
from rtolap.airflow.page.stored import loads
from rtolap.airflow.page.stored.loaders import letters_of, loaders_of
from rtolap.airflow.page.stored.messages import ErrorPage, LoadList, Loads, StoredTablePage
from rtolap.airflow.plugin import app
from rtolap.base.errors import NotFound, Unavailable
from rtolap.model.stored.partitions import PartitionRange
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import Buckets, StoredColumn, StoredTable
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.loader.letters import Letter, LetterList
from rtolap.protocols.loader.messages import LoaderStatus
from rtolap.protocols.storage.client import StorageClients
from rtolap.protocols.storage.messages import Heartbeat
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import (
    PartitionInfo,
    PartitionView,
    TableName,
    TableTablets,
    TabletReplicaInfo,
    TabletView,
    TableView,
)
from rtolap.protocols.stream_load.error_rows import ErrorRow, ErrorRows, parsed
from rtolap.stored.frontend.storage_nodes import StorageNodes
from rtolap.stored.stream_load.error_files import ErrorFile

from tests.support.stored.load_endpoint import NODES, PASSWORD, TOKEN, USER, LoadEndpoint, load_endpoint

MARKUP = "<b>x</b>"
NAME = TableName("web", "hits")


def replica(bucket: int, *, pending_files: int = 0, problem: str = "") -> TabletReplicaInfo:
    return TabletReplicaInfo(
        partition="all",
        bucket=bucket,
        node="n1",
        version=1,
        rowsets=1,
        files=1,
        rows=1,
        bytes=1,
        pending_files=pending_files,
        problem=problem,
    )


TABLE = StoredTable(
    database="web",
    name="hits",
    columns=(StoredColumn("id", "int", nullable=False), StoredColumn("host", "string")),
    keys=("id",),
    buckets=Buckets(count=2),
)
PATHS = (
    "/page/loads",
    "/page/loads/tables/web/hits",
    "/page/loads/transactions/web",
    "/page/loads/errors/web?label=l",
    "/page/loaders",
    "/page/loaders/l/dead-letters",
)


NO_TABLETS = TableTablets(replicas=())


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadEndpoint]:
    with load_endpoint(tmp_path_factory.mktemp("page-loads")) as running:
        with StorageNodes(running.ledger, StorageClients(TOKEN)) as known:
            for node in NODES:
                known.heartbeat(node, Heartbeat(node, f"{node}:1", 1 << 40))
        running.assembly.catalogue.create_table(TABLE)
        for label, body in (("day_1", "1,a\n2,b"), ("dayX1", "3,c"), ("broken", f"{MARKUP},d")):
            url = f"{running.body_url}/api/web/hits/_stream_load"
            named = {"label": label, "column_separator": ",", "strict_mode": "true"}
            auth = (USER, PASSWORD)
            httpx.put(url, content=body, headers=named, auth=auth, timeout=60).raise_for_status()
        yield running


@pytest.fixture
def signed_in(endpoint: LoadEndpoint, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    for right in (reader, asker):
        monkeypatch.setitem(app.dependency_overrides, right, lambda: None)
    opened_at(endpoint.url, monkeypatch)
    return TestClient(app)


def opened_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(_hook: RtolapHook, **times: float) -> StoredTablesClient:
        return StoredTablesClient([url], TOKEN, **times)

    monkeypatch.setattr(RtolapHook, "stored_tables", opened)


def test_stored_tables_are_listed_with_the_nodes_that_have_them(signed_in: TestClient) -> None:
    found = msgspec.json.decode(signed_in.get("/page/loads").content, type=Loads)
    assert found.databases == ("web",)
    assert [(each.db, each.name, each.partitions) for each in found.tables] == [("web", "hits", 1)]
    assert found.nodes_error == ""
    assert {each.name for each in found.nodes} == set(NODES)


def test_tables_stand_while_nodes_are_not_known(
    signed_in: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_client: StoredTablesClient) -> None:
        raise Unavailable("no master is known")

    monkeypatch.setattr(StoredTablesClient, "storage_moves", away)
    found = msgspec.json.decode(signed_in.get("/page/loads").content, type=Loads)
    assert len(found.tables) == 1
    assert (found.nodes, found.nodes_error) == ((), "no master is known")


def test_partitions_say_how_many_replicas_can_be_read(signed_in: TestClient) -> None:
    answer = signed_in.get("/page/loads/tables/web/hits")
    (part,) = msgspec.json.decode(answer.content, type=StoredTablePage).partitions
    assert (part.health, part.tablets, part.unreadable) == ("READABLE", 2, ())
    assert (part.fresh, part.visible_version) == (part.replicas, part.committed_version)
    assert signed_in.get("/page/loads/tables/web/gone").status_code == 404


def test_replicas_that_need_a_look_come_first_and_a_table_stands_without_them(
    signed_in: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def page() -> StoredTablePage:
        return msgspec.json.decode(signed_in.get("/page/loads/tables/web/hits").content, type=StoredTablePage)

    assert page().missing == {}
    kept = [replica(0), replica(1, pending_files=4), replica(2, problem="disk"), replica(3, pending_files=9)]
    answered = TableTablets(replicas=tuple(kept), missing={"n3": "away"})
    monkeypatch.setattr(StoredTablesClient, "tablets", lambda *_: answered)
    assert [each.bucket for each in page().replicas] == [2, 3, 1, 0]
    assert page().missing == {"n3": "away"}

    def away(*_: object) -> TableTablets:
        raise Unavailable("no front end answers that")

    monkeypatch.setattr(StoredTablesClient, "tablets", away)
    assert len(page().partitions) == 1
    assert (page().replicas, page().missing) == ((), {"": "no front end answers that"})


def test_loads_are_found_by_a_part_of_their_label_and_say_why_they_failed(signed_in: TestClient) -> None:
    def found(label: str) -> LoadList:
        answer = signed_in.get("/page/loads/transactions/web", params={"label": label})
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=LoadList)

    assert found("").states == {"ABORTED": 1, "VISIBLE": 2}
    assert {each.label for each in found("day").loads} == {"day_1", "dayX1"}
    assert [each.label for each in found("day_").loads] == ["day_1"], "_ means itself"
    (broken,) = found("roke").loads
    assert broken.state == "ABORTED"
    assert broken.reason
    assert broken.has_errors
    (well,) = found("day_").loads
    assert (well.rows, well.has_errors) == (2, False)
    assert broken.took_ms is not None


def test_rejected_rows_are_read_where_their_load_says(signed_in: TestClient) -> None:
    answer = signed_in.get("/page/loads/errors/web", params={"label": "broken"})
    page = msgspec.json.decode(answer.content, type=ErrorPage)
    assert (page.label, page.first, page.total, page.left_out) == ("broken", 0, 1, 0)
    assert page.rows[0].row == f"{MARKUP},d"
    assert [each.rows for each in page.reasons] == [1]
    for label, words in (("day_1", "no rejected rows"), ("nope", "nope")):
        gone = signed_in.get("/page/loads/errors/web", params={"label": label})
        assert gone.status_code == 404
        assert words in gone.json()["message"]


@given(
    st.lists(
        st.tuples(
            st.text("ab;[].\n' 1R:", min_size=1, max_size=12).filter(lambda it: ". src line [" not in it),
            st.text("ab;[].\n' 1R:", max_size=12),
        ),
        max_size=8,
    ),
    st.integers(0, 3),
)
def test_each_row_of_an_error_file_is_read_as_it_was_written(rows: list[tuple[str, str]], left: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = ErrorFile(Path(folder))
        file.write_rows([(text, reason) for reason, text in rows], len(rows) + left if rows else 0)
        file.close()
        written = "" if file.name is None else (Path(folder) / file.name).read_bytes().decode()
    found = parsed(written)
    assert [(each.reason, each.row) for each in found.rows] == rows
    assert found.left_out == (left if rows else 0)


def test_rows_are_told_apart_by_the_kind_of_reason_and_shown_a_page_at_a_time() -> None:
    rows = [ErrorRow(f"r{number}", f"column id: expected int, found 'x{number}'") for number in range(250)]
    rows.insert(3, ErrorRow("other", "null in a column that takes none"))
    found = ErrorRows(rows=tuple(rows), left_out=7)
    page = loads.error_page("l", found, "", 200, now_ms=1)
    assert (page.first, page.total, len(page.rows), page.left_out) == (200, 251, 51, 7)
    assert [each.rows for each in page.reasons] == [250, 1]
    (one,) = loads.error_page("l", found, page.reasons[1].reason, 0, now_ms=1).rows
    assert one.row == "other"
    assert loads.error_page("l", found, page.reasons[0].reason, 0, now_ms=1).total == 250


def test_a_front_end_that_is_away_is_said_in_words(
    signed_in: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_at("http://127.0.0.1:1", monkeypatch)
    for path in PATHS[:4]:
        answer = signed_in.get(path)
        assert answer.status_code == 503, path
        assert "no front end took" in answer.json()["message"]


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("path", PATHS)
def test_nobody_sees_loads_who_may_not_read(
    path: str, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse() -> None:
        raise HTTPException(status)

    monkeypatch.setitem(app.dependency_overrides, reader, refuse)
    assert TestClient(app).get(path).status_code == status


@pytest.mark.parametrize("path", ["/page/loaders/l/dead-letters", "/page/loads/errors/web?label=l"])
def test_records_are_shown_to_who_may_ask_alone(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise HTTPException(403)

    monkeypatch.setitem(app.dependency_overrides, reader, lambda: None)
    monkeypatch.setitem(app.dependency_overrides, asker, refuse)
    assert TestClient(app).get(path).status_code == 403


def view(version: int, *nodes: tuple[str, ...]) -> TableView:
    tablets = tuple(TabletView(bucket, each) for bucket, each in enumerate(nodes))
    part = PartitionView(PartitionRange(0, 1, "p"), version, tablets)
    return TableView(1, "web", "hits", initial_schema(TABLE), (part,))


@pytest.mark.parametrize(
    ("seen", "health", "unreadable"),
    [
        (view(7, ("n1", "n2"), ("n1", "n2")), "READABLE", ()),
        (view(7, ("n1", "n2"), ("n1",)), "BEHIND", ()),
        (view(7, ("n1", "n2"), ()), "UNREADABLE", (1,)),
        (view(8, ("n1", "n2"), ("n1", "n2")), "CHANGING", ()),
    ],
)
def test_health_is_that_of_the_worst_tablet(seen: TableView, health: str, unreadable: tuple[int]) -> None:
    told = PartitionInfo(
        range=PartitionRange(0, 1, "p"), visible_version=7, committed_version=8, buckets=2, replicas=4
    )
    (found,) = loads.table_page(NAME, (told,), seen, NO_TABLETS, now_ms=1).partitions
    assert (found.health, found.unreadable) == (health, unreadable)


@given(st.text(alphabet="ab%_\\", max_size=6))
def test_every_character_of_a_search_means_itself(text: str) -> None:
    pattern = loads.containing(text)
    read, rest = "", pattern[1:-1]
    while rest:
        if rest[0] == "\\":
            read, rest = read + rest[1], rest[2:]
        else:
            assert rest[0] not in "%_"
            read, rest = read + rest[0], rest[1:]
    assert read == text
    assert pattern[0] == pattern[-1] == "%"


def process(name: str, state: str = "RUNNING", port: int = 1, key: str = "") -> ProcessStatus:
    labels = loader_labels(RunningLoader(name, port))
    return ProcessStatus(key=key or f"loader.{name}", generation=1, state=state, labels=labels, changed_ms=1)  # type: ignore[arg-type]


def test_each_loader_is_shown_as_its_process_states_it_or_why_it_is_not_known() -> None:
    ends = threading.Event()

    def ask(loader: RunningLoader) -> LoaderStatus:
        if loader.name == "away":
            raise Unavailable("nobody answers")
        if loader.name == "hangs":
            ends.wait(60)
        job = "another" if loader.name == "moved" else loader.name
        return LoaderStatus(job=job, state="PAUSED", database="web", table="hits", rows_rejected=3)

    other = ProcessStatus(key="receiver.r0", generation=1, state="RUNNING", labels={}, changed_ms=1)
    processes = [
        process("well", "FAILED", key="loader.well.1"),
        process("well"),
        msgspec.structs.replace(process("ended", "FAILED"), log_tail=("begun", f"no table {MARKUP}")),
        *(process(name) for name in ("moved", "away", "hangs")),
        other,
    ]
    try:
        found = {row.name: row for row in loaders_of(processes, ask, now_ms=1, answer_s_max=0.5).loaders}
    finally:
        ends.set()
    assert list(found) == ["away", "ended", "hangs", "moved", "well"]
    assert (found["well"].state, found["well"].rows_rejected, found["well"].error) == ("PAUSED", 3, "")
    assert {name: row.error for name, row in found.items() if row.error} == {
        "away": "nobody answers",
        "ended": f"its process does not run | begun | no table {MARKUP}",
        "hangs": "it has not answered in time",
        "moved": "loader another answers at its port",
    }
    assert all(row.rows_loaded is None for row in found.values() if row.error), "unknown is not 0"


def test_dead_letters_are_those_of_the_loader_that_was_asked_for() -> None:
    letter = Letter(partition=0, offset=7, state="OPEN", reason="wrong_type", value=MARKUP)
    found = LetterList(
        job="well",
        topic="t.well.rejects",
        letters=(letter,),
        counts={"OPEN": 1},
        reasons={"b": 1, "a": 2},
        cut=True,
    )
    page = letters_of("well", found, now_ms=5)
    assert (page.loader, page.topic, page.letters, page.counts, page.cut) == (
        *("well", "t.well.rejects", (letter,)),
        *({"OPEN": 1}, True),
    )
    assert list(page.reasons.items()) == [("a", 2), ("b", 1)]
    with pytest.raises(NotFound, match="well answers at the port of other"):
        letters_of("other", found, now_ms=5)
