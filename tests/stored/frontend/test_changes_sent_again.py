"""A change of a stored table whose answer was lost is sent again: it is made once, and answered as it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from rtolap.base.errors import CommitUnknown, DefinitionError, NotFound, Refused, Unavailable
from rtolap.cli import tables as commands
from rtolap.model.stored.partitions import partition_of
from rtolap.model.stored.table import RangePartitions, StoredColumn, StoredTable
from rtolap.protocols.rest.request_ids import HEADER
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import AddColumn, AddPartition, TableName
from rtolap.query.stored.ddl import parse_ddl
from rtolap.query.stored.definitions import StoredDefinitions
from rtolap.query.stored.source import RemoteSource
from typer.testing import CliRunner

from tests.support import http_calls
from tests.support.hostile.lost_answers import LosingProxy
from tests.support.stored.load_endpoint import PASSWORD, TOKEN, USER, LoadEndpoint, load_endpoint

DAY = partition_of(1_700_000_000_000, "day")
DAYS = TableName("web", "days")
DEFINITION = StoredTable(
    database=DAYS.db,
    name=DAYS.name,
    columns=(StoredColumn("at", "timestamp", nullable=False), StoredColumn("v", "int")),
    partitions=RangePartitions("at", "day", ahead=0, on_demand=False),
)
PART = AddPartition(DAY.name, DAY.start_ms, DAY.end_ms)
COLUMN = AddColumn(StoredColumn("w", "int"))


@dataclass
class World:
    """`direct`: what somebody else does at the endpoint; `client`: asks by way of the wire that loses
    answers.
    """

    endpoint: LoadEndpoint
    wire: LosingProxy
    direct: StoredTablesClient
    client: StoredTablesClient

    def load(self) -> None:
        body = json.dumps({"at": "2023-11-14 00:00:00", "v": 1}).encode()
        answer = http_calls.put(
            f"{self.endpoint.body_url}/api/web/days/_stream_load",
            content=body,
            headers={"format": "json"},
            auth=(USER, PASSWORD),
            timeout=60,  # the first one waits for much to be imported
        ).json()
        assert (answer["Status"], answer["NumberLoadedRows"]) == ("Success", 1), answer

    def versions(self) -> dict[str, int]:
        return {part.range.name: part.visible_version for part in self.direct.partitions(DAYS)}

    def table_id(self) -> int:
        return self.direct.table(DAYS).table_id


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadEndpoint]:
    with load_endpoint(tmp_path_factory.mktemp("endpoint")) as running:
        yield running


@pytest.fixture
def world(endpoint: LoadEndpoint) -> Iterator[World]:
    """With the table and one partition of it, both new."""
    with (
        LosingProxy(endpoint.url) as wire,
        StoredTablesClient([endpoint.url], TOKEN) as direct,
        StoredTablesClient([wire.url], TOKEN) as client,
    ):
        if any(table.name == DAYS.name for table in direct.tables()):
            direct.drop(DAYS)
        direct.create(DEFINITION)
        direct.add_partition(DAYS, PART)
        yield World(endpoint, wire, direct, client)
        assert not wire.failures, wire.failures


def truncate_by_client(world: World) -> None:
    world.client.truncate(DAYS)


def truncate_by_command(world: World) -> None:
    done = CliRunner().invoke(commands.app, ["truncate", str(DAYS), "--yes"], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def drop_by_command(world: World) -> None:
    done = CliRunner().invoke(commands.app, ["drop", str(DAYS), "--yes"], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def by_sql(world: World, sql: str) -> None:
    """As the MySQL server does it."""
    source = RemoteSource([world.wire.url], TOKEN)
    try:
        statement = parse_ddl(sql, DAYS.db)
        assert statement is not None
        StoredDefinitions(source, lambda: None).apply(statement)
    finally:
        source.close()


@pytest.fixture
def settings(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("RTOLAP_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("RTOLAP_STREAM_LOAD_ENDPOINTS", world.wire.url)


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    "truncate",
    [truncate_by_client, truncate_by_command, lambda world: by_sql(world, "TRUNCATE TABLE days")],
    ids=["client", "command", "sql"],
)
def test_rows_loaded_after_a_truncate_whose_answer_was_lost_stay(
    world: World, truncate: Callable[[World], None]
) -> None:
    world.load()
    emptied: list[int] = []

    def meanwhile() -> None:
        emptied.append(world.table_id())
        world.direct.add_partition(DAYS, PART)
        world.load()

    world.wire.lose_next(meanwhile)
    before = world.table_id()
    truncate(world)
    assert world.wire.lost == 1
    assert emptied == [world.table_id()] != [before]
    assert world.versions()[DAY.name] == 1


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    "drop",
    [
        lambda world: world.client.drop(DAYS),
        drop_by_command,
        lambda world: by_sql(world, "DROP TABLE IF EXISTS days"),
    ],
    ids=["client", "command", "sql"],
)
def test_a_table_made_after_a_drop_whose_answer_was_lost_stays(
    world: World, drop: Callable[[World], None]
) -> None:
    before = world.table_id()
    world.wire.lose_next(lambda: world.direct.create(DEFINITION))
    drop(world)
    assert world.wire.lost == 1
    assert world.table_id() > before


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    "drop",
    [
        lambda world: world.client.drop_partition(DAYS, DAY.name),
        lambda world: by_sql(world, f"ALTER TABLE days DROP PARTITION {DAY.name}"),
    ],
    ids=["client", "sql"],
)
def test_a_partition_made_after_a_drop_whose_answer_was_lost_stays(
    world: World, drop: Callable[[World], None]
) -> None:
    world.load()

    def meanwhile() -> None:
        assert DAY.name not in world.versions()
        world.direct.add_partition(DAYS, PART)
        world.load()

    world.wire.lose_next(meanwhile)
    drop(world)
    assert world.wire.lost == 1
    assert world.versions()[DAY.name] == 1


def test_a_table_dropped_after_a_creation_whose_answer_was_lost_is_not_made_again(world: World) -> None:
    world.direct.drop(DAYS)
    world.wire.lose_next(lambda: world.direct.drop(DAYS))
    assert world.client.create(DEFINITION).definition == DEFINITION
    with pytest.raises(NotFound):
        world.direct.table(DAYS)


def test_a_column_or_partition_added_with_a_lost_answer_is_not_there_already(world: World) -> None:
    world.wire.lose_next()
    changed = world.client.change_columns(DAYS, [COLUMN])
    assert changed == world.direct.table(DAYS)
    assert changed.schema.names == ("at", "v", "w")
    world.direct.drop_partition(DAYS, DAY.name)
    world.wire.lose_next()
    assert DAY in world.client.add_partition(DAYS, PART).partitions
    assert world.wire.lost == 2


def test_a_refusal_whose_answer_was_lost_stays_one(world: World) -> None:
    """What was not there was not dropped, though somebody has made it since."""
    world.direct.drop(DAYS)
    world.wire.lose_next(lambda: world.direct.create(DEFINITION))
    with pytest.raises(NotFound, match="unknown table"):
        world.client.drop(DAYS)
    assert world.wire.lost == 1
    assert world.direct.table(DAYS).definition == DEFINITION


def test_two_changes_are_two_requests(world: World) -> None:
    first = world.client.truncate(DAYS)
    assert world.client.truncate(DAYS).table_id > first.table_id


def test_a_change_that_no_endpoint_answered_is_in_doubt_and_one_that_none_was_sent_is_not(
    world: World,
) -> None:
    def lose_again() -> None:
        world.wire.lose_next(lose_again)

    lose_again()
    with (
        StoredTablesClient([world.wire.url], TOKEN, retry_s=0.1) as asking,
        pytest.raises(CommitUnknown, match="the outcome of POST /stored-tables/web/days/truncate"),
    ):
        asking.truncate(DAYS)
    assert world.wire.lost >= 2
    with (
        StoredTablesClient(["http://127.0.0.1:9"], TOKEN, retry_s=0.1) as asking,
        pytest.raises(Unavailable, match="no front end took"),
    ):
        asking.truncate(DAYS)


def post(endpoint: LoadEndpoint, path: str, request_id: str | None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {TOKEN}", **({} if request_id is None else {HEADER: request_id})}
    return http_calls.post(f"{endpoint.url}/api/v1/stored-tables/{path}", headers=headers, timeout=60)


def test_one_id_is_for_one_change(world: World) -> None:
    first = post(world.endpoint, "web/days/truncate", "a-request-of-mine")
    assert post(world.endpoint, "web/days/truncate", "a-request-of-mine").json() == first.json()
    refused = post(world.endpoint, "web/others/truncate", "a-request-of-mine")
    assert refused.status_code == Refused.http_status
    assert "has been another change of stored tables" in refused.json()["message"]
    assert post(world.endpoint, "web/days/truncate", None).json() != first.json()


@pytest.mark.parametrize(
    "request_id", ["", "too-short", "x" * 65, "a blank in between", "semicolon;semicolon"]
)
def test_an_id_that_cannot_be_kept_is_refused_and_nothing_is_changed(world: World, request_id: str) -> None:
    before = world.table_id()
    refused = post(world.endpoint, "web/days/truncate", request_id)
    assert refused.status_code == DefinitionError.http_status
    assert HEADER in refused.json()["message"]
    assert world.table_id() == before
