"""Whatever is sent to the front end costs little, raises nothing; everybody else's loads are taken."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions

from tests.support.hostile.hostile_http import HostileHttp, basic
from tests.support.hostile.hostile_loads import load_body
from tests.support.seeds import so_many
from tests.support.stored.load_endpoint import OTHER_USER, PASSWORD, TOKEN, USER, LoadEndpoint, load_endpoint

REQUESTS = 20
CPU_S_MAX = 10.0  # of one connection
COLUMNS = (
    StoredColumn("id", "int", nullable=False),
    StoredColumn("host", "string"),
    StoredColumn("amount", "decimal(10,2)"),
)
PAGES = (b"PUT /api/web/hostile/_stream_load", b"PUT /api/web/_stream_load_2pc", b"PUT /api/_ack_labels")
OWN = (b"POST /api/v1/stored-tables", b"POST /api/v1/read-views", b"POST /api/v1/storage-nodes/x/heartbeat")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadEndpoint]:
    with load_endpoint(Path(tmp_path_factory.mktemp("endpoint"))) as running:
        for name in ("hits", "hostile"):
            running.assembly.catalogue.create_table(
                StoredTable(database="web", name=name, columns=COLUMNS, keys=("id",))
            )
        yield running


@pytest.mark.seeded
@pytest.mark.parametrize(
    ("credentials", "pages", "body_share", "least"),
    [
        pytest.param(None, PAGES, 0.05, so_many(600, 1_200), id="nobody"),
        pytest.param(basic(USER, PASSWORD), PAGES, 0.25, so_many(300, 600), id="a-loader"),
        pytest.param(b"Bearer " + TOKEN.encode(), OWN, 0.25, so_many(100, 200), id="the-token"),
    ],
)
def test_no_request_costs_more_than_a_little(
    endpoint: LoadEndpoint, credentials: bytes | None, pages: tuple[bytes, ...], body_share: float, least: int
) -> None:
    rng = random.Random(31)
    port = urlsplit(endpoint.body_url).port
    assert port is not None
    hostile = HostileHttp("127.0.0.1", port, pages, load_body(orc_share=0.003), body_share)
    hostile.ask_until(rng, credentials, REQUESTS, answers=least, cpu_s_max=CPU_S_MAX)
    before = len(endpoint.rows("web", "hits"))
    with StreamLoadClient((endpoint.url,), OTHER_USER, PASSWORD) as client:
        options = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=60)
        label = f"good-{before}"
        assert client.load("web", "hits", label, b"1,a,1.5\n2,b,2.5", options).status == "Success"
    assert len(endpoint.rows("web", "hits")) == before + 2
