"""An endpoint and a node as Prometheus scrapes them: the counts of loads that were just made."""

from __future__ import annotations

import uuid
from typing import NamedTuple

import httpx
import pytest
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import LoadAnswer, SendOptions

from tests.support.scrape import Scrape, scrape
from tests.support.stored.stream_load_cluster import PASSWORD, TOKEN, USER, StreamLoadCluster

ROUTE = "/api/{db}/{table}/_stream_load"
BODY = b"1,a,1.50,\\N\n2,b,2.50,\\N\nthree,c,1.00,\\N\n4,d,1.00,\\N\n5,e,1.00,\\N\n"


class Pages(NamedTuple):
    endpoint: Scrape
    node: Scrape


def pages(cluster: StreamLoadCluster) -> Pages:
    return Pages(*(scrape(cluster.metrics_urls[name], TOKEN) for name in ("endpoint-0", "node-0")))


def load(cluster: StreamLoadCluster, table: TableName, **headers: str) -> LoadAnswer:
    options = SendOptions(format="csv", headers={"column_separator": ",", **headers})
    with StreamLoadClient(cluster.urls, USER, PASSWORD) as client:
        return client.load(table.db, table.name, uuid.uuid4().hex, BODY, options)


def test_the_counts_of_a_load_are_on_the_pages_of_its_endpoint_and_its_node(
    cluster: StreamLoadCluster, table: TableName
) -> None:
    before = pages(cluster)
    good = load(cluster, table, max_filter_ratio="0.9", where="id <> 4")
    bad = load(cluster, table)
    assert (good.status, bad.status) == ("Success", "Fail")
    counts = (good.number_loaded_rows, good.number_filtered_rows, good.number_unselected_rows)
    assert counts == (3, 1, 1)
    assert [row["id"] for row in cluster.rows(table)] == [1, 2, 5]
    after = pages(cluster)

    def grown(name: str, **labels: str) -> float:
        return after.endpoint(name, **labels) - before.endpoint(name, **labels)

    assert grown("rtolap_stream_load_loads_total", status="Success") == 1
    assert grown("rtolap_stream_load_loads_total", status="Fail") == 1
    assert grown("rtolap_stream_load_rows_total", what="loaded") == 3
    assert grown("rtolap_stream_load_rows_total", what="unselected") == 1
    assert grown("rtolap_stream_load_rows_total", what="filtered") == 1 + bad.number_filtered_rows
    assert grown("rtolap_stream_load_load_bytes_total") == 2 * len(BODY)
    assert grown("rtolap_stream_load_load_seconds_count") == 2
    assert grown("rtolap_stream_load_http_requests_total", route=ROUTE, status="200") == 2
    assert after.endpoint("rtolap_stream_load_loads_running") == 0
    assert after.endpoint("process_resident_memory_bytes") > 0
    taken, kept = "rtolap_storage_loaded_rows_total", "rtolap_storage_rows"
    assert after.node(taken) - before.node(taken) >= 3  # those of the failed load may have come too
    assert after.node(kept) - before.node(kept) == 3


@pytest.mark.parametrize("name", ["endpoint-0", "node-0"])
def test_a_page_is_for_those_with_the_token(cluster: StreamLoadCluster, name: str) -> None:
    url = cluster.metrics_urls[name]
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        assert httpx.get(url, headers=headers).status_code == 401
    assert httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
