"""The sink in memory, and the real client before a real endpoint, keep one contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rtolap.base.errors import DefinitionError, Refused, Unauthorized, Unavailable
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.stack.ports import free_port

from tests.support.loader.sink_contract import SinkContract, Table
from tests.support.stored.load_endpoint import PASSWORD, TOKEN, USER, LoadEndpoint, load_endpoint
from tests.support.twins.loader_sink import MemorySink


@dataclass
class MemoryTable(Table):
    memory: MemorySink

    def rows(self) -> list[dict[str, Any]]:
        return self.memory.rows(self.db, self.name)


class TestMemorySink(SinkContract):
    @pytest.fixture
    def table(self) -> Table:
        sink = MemorySink()
        sink.tables["d", "t"] = TableSchema(
            properties=(
                SchemaColumn("k", "BIGINT", is_nullable="No"),
                SchemaColumn("s", "VARCHAR"),
                SchemaColumn("n", "BIGINT"),
            )
        )
        return MemoryTable(sink, "d", "t", sink)


@dataclass
class EndpointTable(Table):
    endpoint: LoadEndpoint

    def rows(self) -> list[dict[str, Any]]:
        return self.endpoint.rows(self.db, self.name)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadEndpoint]:
    with load_endpoint(tmp_path_factory.mktemp("endpoint")) as running:
        yield running


class TestStreamLoadClient(SinkContract):
    forms = ("arrow", "json", "csv")

    @pytest.fixture
    def table(self, endpoint: LoadEndpoint, request: pytest.FixtureRequest) -> Iterator[Table]:
        database = f"d{abs(hash(request.node.name)) % 10**8}"
        columns = (
            StoredColumn("k", "bigint", nullable=False),
            StoredColumn("s", "string"),
            StoredColumn("n", "bigint"),
        )
        with StoredTablesClient([endpoint.url], TOKEN) as tables:
            tables.create(StoredTable(database=database, name="t", columns=columns, keys=("k",)))
        with StreamLoadClient([endpoint.url], USER, PASSWORD) as client:
            yield EndpointTable(client, database, "t", endpoint)


def test_a_endpoint_that_is_away_is_passed_over(endpoint: LoadEndpoint) -> None:
    with StreamLoadClient([f"http://127.0.0.1:{free_port()}", endpoint.url], USER, PASSWORD) as client:
        assert client.keeps_labels()
        assert client.state("d", "nobody") == "UNKNOWN"


def test_no_endpoint_at_all_is_unavailable() -> None:
    with StreamLoadClient([f"http://127.0.0.1:{free_port()}"], USER, PASSWORD) as client:
        with pytest.raises(Unavailable):
            client.state("d", "l")
        with pytest.raises(Unavailable):
            client.load("d", "t", "l", b"")


def test_a_wrong_password_is_told_as_such(endpoint: LoadEndpoint) -> None:
    with StreamLoadClient([endpoint.url], USER, "guessed") as client, pytest.raises((Unauthorized, Refused)):
        client.state("d", "l")


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://user:secret@host:1", ""])
def test_an_address_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        StreamLoadClient([url], USER, PASSWORD)
    assert "secret" not in str(refused.value)


def test_nowhere_to_go_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError):
        StreamLoadClient([], USER, PASSWORD)
    with pytest.raises(DefinitionError):
        StreamLoadClient(["http://h:1"], USER, PASSWORD, ca_file=tmp_path / "none.pem")
