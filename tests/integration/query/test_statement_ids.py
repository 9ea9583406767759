"""A statement is found again in the logs of receivers and workers, by the id that its answer has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from rtolap.protocols.query.messages import STATEMENT_HEADER

from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.moves.asked_stream import Stream

pytestmark = [pytest.mark.integration]


@pytest.fixture
def world(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[World]:
    name = unique_name.replace("__", "_")  # two are reserved in names of tables
    create_topic(name, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{name}", kafka=kafka, coordinators=1)
    services.environment["RTOLAP_LOG_LEVEL"] = "DEBUG"
    one = World(services, kafka, name, 5, {"rs": ("r0",)})
    with closing(services), closing(one):
        services.start_coordinators()
        one.start_receivers("rs")
        services.start_query()
        one.declare()
        yield one


def test_a_statement_leads_from_the_query_services_door_to_the_receivers_log(
    world: World, kafka: str
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

    for statement in (first, second, by_mysql):
        found = calls("r0", statement)
        assert any(line.endswith("flight_server: do_get") for line in found), (statement, found)
    assert calls("query", first)
    for statement in (first, second, by_mysql):  # its worker is a process of its own, with the service's log
        found = calls("query", statement)
        assert any(line.endswith("process: Run") for line in found), (statement, found)
