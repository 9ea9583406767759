"""Decisions of loads over REST: who may ask, and that each may be asked twice."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rtolap.base.errors import DefinitionError, IllegalTransition, LabelUsed, NotFound, NotLeader
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.rest.leader_finder import LeaderFinder
from rtolap.protocols.rest.request import headers
from rtolap.stored.metastore.records import BeginRequest, TransactionState
from rtolap.stored.stream_load import decision_messages as wire
from rtolap.stored.stream_load.decision_client import DecisionClient

from tests.support import http_calls
from tests.support.stored.load_endpoint import PASSWORD, TOKEN, USER, LoadEndpoint, load_endpoint

PATHS = ("table", "partitions", "can-take", "begin", "precommit", "commit", "abort", "transaction", "wait")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadEndpoint]:
    with load_endpoint(Path(tmp_path_factory.mktemp("endpoint"))) as running:
        columns = (StoredColumn("id", "int", nullable=False),)
        running.assembly.catalogue.create_table(
            StoredTable(database="web", name="hits", columns=columns, keys=("id",))
        )
        yield running


@pytest.fixture
def client(endpoint: LoadEndpoint) -> Iterator[DecisionClient]:
    with httpx.Client(headers=headers(TOKEN)) as http:
        yield DecisionClient(LeaderFinder([endpoint.url]), http, retry_s=0.0)


@pytest.mark.parametrize("path", PATHS)
def test_decisions_want_the_token_of_the_cluster(endpoint: LoadEndpoint, path: str) -> None:
    url = f"{endpoint.url}{wire.PREFIX}/{path}"
    assert http_calls.post(url, content=b"{}").status_code == 401
    assert http_calls.post(url, content=b"{}", auth=httpx.BasicAuth(USER, PASSWORD)).status_code == 401
    assert http_calls.post(url, content=b"{}", headers=headers("another token")).status_code == 401
    assert http_calls.post(url, content=b"{}", headers=headers(TOKEN)).status_code == 422
    assert http_calls.post(url, content=b"no JSON", headers=headers(TOKEN)).status_code == 422


def test_a_begin_that_comes_twice_begins_one_transaction(client: DecisionClient) -> None:
    label, request_id = uuid.uuid4().hex, uuid.uuid4().hex
    first, second = (
        client.begin(BeginRequest("web", ("hits",), label, request_id, 60_000)) for _ in range(2)
    )
    assert (first, first.state) == (second, TransactionState.PREPARE)
    with pytest.raises(LabelUsed) as used:
        client.begin(BeginRequest("web", ("hits",), label, uuid.uuid4().hex, 60_000))
    assert (used.value.txn_id, used.value.existing_job_status) == (first.txn_id, "RUNNING")
    for _ in range(2):
        assert client.abort("web", first.txn_id, "given up").state is TransactionState.ABORTED
    with pytest.raises(IllegalTransition):
        client.commit("web", first.txn_id, ())
    assert client.begin(BeginRequest("web", ("hits",), label, uuid.uuid4().hex, 60_000)).txn_id > first.txn_id


def test_a_commit_that_comes_twice_is_made_once_and_visible(client: DecisionClient) -> None:
    begun = client.begin(BeginRequest("web", ("hits",), uuid.uuid4().hex, uuid.uuid4().hex, 60_000))
    for _ in range(2):
        committed = client.commit("web", begun.txn_id, ())
        assert committed.state in (TransactionState.COMMITTED, TransactionState.VISIBLE)
    assert client.wait("web", begun.txn_id, 60.0)
    assert client.get("web", begun.txn_id).state is TransactionState.VISIBLE


def test_a_table_arrives_as_the_master_reads_it(endpoint: LoadEndpoint, client: DecisionClient) -> None:
    entry = client.table_to_load("web", "hits")
    assert entry == endpoint.assembly.catalogue.table_to_load("web", "hits")
    assert client.ensure_partitions("web", "hits", [0]) == entry
    assert client.can_take(entry, [part.name for part in entry.partitions])


def test_errors_of_the_master_keep_their_type(client: DecisionClient) -> None:
    with pytest.raises(NotFound):
        client.table_to_load("web", "nothing")
    with pytest.raises(NotFound):
        client.get("web", 1 << 40)
    with pytest.raises(DefinitionError):
        client.begin(BeginRequest("web", ("hits",), "no label!", uuid.uuid4().hex, 60_000))


def test_a_front_end_that_is_away_is_asked_until_the_time_is_over() -> None:
    """The error says what to do: the same label may be sent again."""
    asked: list[str] = []

    def away(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        raise httpx.ConnectError("nobody is there")

    with httpx.Client(transport=httpx.MockTransport(away)) as http:
        urls = ["http://one:1", "http://two:1"]
        client = DecisionClient(LeaderFinder(urls), http, retry_s=0.0)
        with pytest.raises(NotLeader, match="send it again with the same label"):
            client.begin(BeginRequest("web", ("hits",), "label", "request", 60_000))
    assert asked == [f"{url}{wire.PREFIX}/begin" for url in urls]
