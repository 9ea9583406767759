"""A statement is found again in the logs of receivers and workers, by the id that its answer has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from rtolap.base import spans
from rtolap.protocols.query.messages import STATEMENT_HEADER

from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.moves.asked_stream import Stream
from tests.support.telemetry.receivers import COLLECTOR, Collector, Messages, Received, Receiver
from tests.support.waiting import until

pytestmark = [pytest.mark.integration]


@pytest.fixture(params=[Messages, Collector], ids=["messages", "collector"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Receiver]:
    if request.param is Collector and not COLLECTOR.exists():
        pytest.skip(f"there is no {COLLECTOR}: `make otlp-collector` builds it in some minutes")
    with closing(request.param(tmp_path)) as made:
        yield made


@pytest.fixture
def world(
    tmp_path: Path,
    zookeeper: str,
    kafka: str,
    unique_name: str,
    create_topic: Callable[..., str],
    receiver: Receiver,
) -> Iterator[World]:
    name = unique_name.replace("__", "_")  # two are reserved in names of tables
    create_topic(name, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{name}", kafka=kafka, coordinators=1)
    services.environment["RTOLAP_LOG_LEVEL"] = "DEBUG"
    services.environment |= {spans.ENDPOINT: receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    one = World(services, kafka, name, 5, {"rs": ("r0",)})
    with closing(services), closing(one):
        services.start_coordinators()
        one.start_receivers("rs")
        services.start_query()
        one.declare()
        yield one


def test_a_statement_leads_through_the_logs_of_all_services_and_its_trace_through_their_spans(
    world: World, kafka: str, receiver: Receiver
) -> None:
    with closing(Stream(world, kafka)) as stream:
        stream.produce(PARTITIONS)
        client = world.services.coordinator
        wait_for("the receiver serves", lambda: client.cube(world.cube).catching_up == (), 90)
        sql = f"select count(*) from {world.cube}"
        with httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
            url = f"{world.services.query_url}/api/v1/query"
            answers = [http.post(url, json={"sql": f"{sql} /* {n} */"}).raise_for_status() for n in range(2)]
        first, second = (answer.headers[STATEMENT_HEADER] for answer in answers)
        assert first != second
        with closing(world.services.mysql()) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            query_log = "select statement_id from information_schema.query_log where statement like %s"
            cursor.execute(query_log, (f"%from {world.cube}",))
            ((by_mysql,),) = cursor.fetchall()
    folder = world.services.folder

    def calls(process: str, statement: str) -> list[str]:
        text = (folder / f"{process}.log").read_text(errors="replace")
        return re.findall(rf"^.* (\S+: \w+).*statement={statement}\b.*$", text, re.MULTILINE)

    def traces(process: str, statement: str) -> set[str]:
        text = (folder / f"{process}.log").read_text(errors="replace")
        mine = [line for line in text.splitlines() if f"statement={statement}" in line]
        return {found for line in mine for found in re.findall(r"\btrace=([0-9a-f]{32})\b", line)}

    for statement in (first, second, by_mysql):
        found = calls("r0", statement)
        assert any(line.endswith("flight_server: do_get") for line in found), (statement, found)
    assert calls("query", first)
    for statement in (first, second, by_mysql):  # its worker is a process of its own, with the service's log
        found = calls("query", statement)
        assert any("workers.process: " in line for line in found), (statement, found)
        (trace,) = traces("query", statement)  # each of its lines names the same
        assert traces("r0", statement) == {trace}
        mine = until_both(receiver, trace)
        assert {span.attributes.get("rtolap.statement", statement) for span in mine} == {statement}
        (of_statement,) = [span.span for span in mine if span.name == "statement"]
        by_worker = {span.name for span in mine if span.parent == of_statement}
        assert any(name.startswith("worker ") for name in by_worker), (
            by_worker
        )  # which of them, the plan says
        known = {span.span for span in mine}
        assert [span for span in mine if span.parent and span.parent not in known] == []


def until_both(receiver: Receiver, trace: str) -> list[Received]:
    """Return the spans of a trace once the query service's and the receiver's have come, all in one."""

    def mine() -> list[Received]:
        return [span for span in receiver.spans() if span.trace == trace]

    def complete() -> bool:
        roots = [span for span in mine() if not span.parent]
        return len(roots) == 1 and {"rtolap-query", "rtolap-receiver"} <= {span.service for span in mine()}

    until(complete, lambda: f"spans of trace {trace} come: {mine()}")
    return mine()
