"""The code of a failed load's answer tells rows that the table does not take from a cluster that cannot."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import LoadAnswer, SendOptions

from tests.support.stored.load_endpoint import PASSWORD, USER, LoadEndpoint, load_endpoint

HITS = StoredTable(
    database="web",
    name="hits",
    columns=(StoredColumn("id", "int", nullable=False), StoredColumn("host", "string")),
    keys=("id",),
)
GROUPED = {"group_commit": "sync_mode"}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadEndpoint]:
    with load_endpoint(Path(tmp_path_factory.mktemp("endpoint"))) as running:
        running.assembly.catalogue.create_table(HITS)
        yield running


def load(
    endpoint: LoadEndpoint, body: bytes = b'{"id": 1, "host": "a"}', table: str = "hits", **options: object
) -> LoadAnswer:
    headers = options.pop("headers", {})
    label = "" if headers == GROUPED else uuid.uuid4().hex
    with StreamLoadClient([endpoint.body_url], USER, PASSWORD) as client:
        sent = SendOptions(**{"format": "json", "headers": headers, **options})  # type: ignore[arg-type]
        return client.load("web", table, label, body, sent)


@pytest.mark.parametrize(
    ("body", "options", "code"),
    [
        (b'{"id": null}', {}, "rows_refused"),
        (b'{"id": null}', {"headers": GROUPED}, "rows_refused"),
        (b"no Arrow", {"format": "arrow"}, "too_large"),
        (b"no Parquet", {"format": "parquet"}, "corrupted"),
    ],
)
def test_rows_that_are_refused_for_what_they_hold(
    endpoint: LoadEndpoint, body: bytes, options: dict[str, object], code: str
) -> None:
    answer = load(endpoint, body, **options)
    assert (answer.status, answer.code, answer.refuses_rows) == ("Fail", code, True), answer.message


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"table": "misses"}, "not_found"),
        ({"table": "misses", "headers": GROUPED}, "not_found"),
        ({"headers": {"partitions": "p1999"}}, "definition"),
        ({"headers": {"where": "nowhere > 1"}}, "definition"),
        ({"not_after_ms": 1}, "refused"),
    ],
)
def test_requests_that_blame_no_row(endpoint: LoadEndpoint, options: dict[str, object], code: str) -> None:
    answer = load(endpoint, **options)  # type: ignore[arg-type]
    assert (answer.status, answer.code, answer.refuses_rows) == ("Fail", code, False), answer.message


@pytest.mark.parametrize("headers", [{}, GROUPED, {"two_phase_commit": "true"}])
def test_too_few_storage_nodes_blame_no_row(endpoint: LoadEndpoint, headers: dict[str, str]) -> None:
    for name in ("n2", "n3"):
        endpoint.nodes.nodes[name].up = False
    try:
        answer = load(endpoint, headers=headers)
    finally:
        for name in ("n2", "n3"):
            endpoint.nodes.nodes[name].up = True
    assert "succ replica num 1 < quorum replica num 2" in answer.message
    assert (answer.status, answer.code, answer.refuses_rows) == ("Fail", "unavailable", False)
    assert load(endpoint).status == "Success"
