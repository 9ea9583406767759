"""`rtolap query serve` as a process over a real receiver: TLS and limits by option, EXPLAIN, previews."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

import httpx
import pymysql
import pytest
import sqlalchemy
from rtolap.base.errors import QueryError, Unavailable
from rtolap.base.users import password_hash
from rtolap.protocols.query.client import QueryClient

from tests.support import commands
from tests.support.certificates import Certificates, make_certificates
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.query.prices import define_prices
from tests.support.scrape import scrape

pytestmark = [pytest.mark.integration]
USER, PASSWORD = "ann", "s3cret #1"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def services(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, zookeeper: str, kafka: str
) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("services")
    root = f"/serve-{uuid.uuid4().hex}"
    one = Services(folder, zookeeper=zookeeper, root=root, kafka=kafka, coordinators=1, host="127.0.0.1")
    (folder / "users").write_text(f"{USER}:{password_hash(PASSWORD)}\n")
    one.environment["RTOLAP_QUERY_CA"] = str(certificates.authority)
    one.environment["RTOLAP_QUERY_TLS_CERTIFICATE"] = str(certificates.certificate)
    options = ("--tls-key", str(certificates.key), "--require-tls", "--connections-max", "2")
    try:
        one.start_coordinators()
        one.start_receiver("r1", "only", "--checkpoint-interval-s", "0.5", "--idle-after-s", "60")
        one.start("query", "query", "serve", *options, "--login-timeout-s", "2")
        one.coordinator.put_replica_set("only", ["r1"])
        wait_for("the receiver lives", lambda: len(one.coordinator.receivers()) == 1)
        with client(one) as asking:
            wait_for("the query service answers", lambda: answers(asking))
        yield one
    finally:
        one.close()


def client(services: Services) -> QueryClient:
    url = f"https://127.0.0.1:{services.environment['RTOLAP_QUERY_HTTP_PORT']}"
    return QueryClient(url, token=TOKEN, ca_file=Path(services.environment["RTOLAP_QUERY_CA"]))


def answers(asking: QueryClient) -> bool:
    try:
        return asking.health()["status"] == "ok"
    except Unavailable:
        return False


def reflected(services: Services, cube: str) -> list[tuple[object, ...]]:
    """What SQLAlchemy gets of a table that it has reflected: hour, kind, price."""
    address = f"{USER}:{quote(PASSWORD)}@127.0.0.1:{services.environment['RTOLAP_QUERY_MYSQL_PORT']}/rtolap"
    trusted = {"ssl": {"ca": services.environment["RTOLAP_QUERY_CA"], "verify_mode": "required"}}
    engine = sqlalchemy.create_engine(f"mysql+pymysql://{address}", connect_args=trusted)
    table = sqlalchemy.Table(cube, sqlalchemy.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        rows = connection.execute(sqlalchemy.select(table).order_by(table.c.hour_start, table.c.kind)).all()
    engine.dispose()
    return [(f"{row.hour_start:%H}", row.kind, row.price) for row in rows]


def shell(services: Services, *arguments: str) -> str:
    return commands.rtolap(services.environment, *arguments, columns=250)


def test_explain_previews_and_local_time_over_a_real_receiver(
    services: Services, tmp_path: Path, unique_name: str, create_topic: Callable[..., str]
) -> None:
    cube = unique_name
    create_topic(cube)
    definitions = define_prices(tmp_path, cube, zone="America/New_York")
    rows = [
        {"ts": f"2013-11-03T{clock}", "kind": kind, "price": price}
        for clock in ("00:10:00-04:00", "01:10:00-04:00", "01:20:00-05:00", "02:30:00-05:00")
        for kind, price in (("pen", "1.10"), ("ink", None))
    ]
    (tmp_path / f"{cube}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shell(services, "create", str(definitions), "--enable")
    shell(services, "produce", str(tmp_path / f"{cube}.ndjson"))
    count = f"SELECT COUNT(*) FROM {cube}"
    with client(services) as asking:
        wait_for("all is read", lambda: asking.query(count).positions == {cube: {0: 8}})

        by_hour = asking.query(f"SELECT hour_start, COUNT(*) FROM {cube} GROUP BY 1 ORDER BY 1")
        assert [(hour[11:13], number) for hour, number in by_hour.rows] == [("00", 2), ("01", 4), ("02", 2)]

        planned = dict(asking.query(f"EXPLAIN {count} WHERE ts >= '2013-11-03 01:00:00'").rows)
        assert planned["receivers"] == "only: r1"
        assert len(planned["real-time segments"].split(", ")) == 3
        assert planned["real-time events (at most)"] == "6"
        assert planned["rows read (estimate)"] == "0"
        done = dict(asking.query(f"EXPLAIN ANALYZE {count} WHERE ts >= '2013-11-03 01:00:00'").rows)
        assert json.loads(done["positions"]) == {"0": 8}

        assert reflected(services, cube) == [
            (hour, kind, None if kind == "ink" else number * Decimal("1.10"))
            for hour, number in (("00", 1), ("01", 2), ("02", 1))
            for kind in ("ink", "pen")
        ]

        preview = asking.query(f"SELECT * FROM {cube} ORDER BY hour_start DESC, kind LIMIT 3")
        assert [column.name for column in preview.columns] == ["hour_start", "kind", "COUNT(*)", "SUM(price)"]
        assert [(row[0][11:13], *row[1:]) for row in preview.rows] == [
            ("02", "ink", 1, None),
            ("02", "pen", 1, "1.10"),
            ("01", "ink", 2, None),
        ]
    assert "8" in shell(services, "sql", "-e", count)  # over TLS too, by the same settings


def test_sizes_are_predicted_and_groups_advised_from_what_was_asked(
    services: Services, tmp_path: Path, unique_name: str, create_topic: Callable[..., str]
) -> None:
    cube = unique_name
    create_topic(cube)
    definitions = define_prices(tmp_path, cube)
    text = definitions.read_text().replace("[kind]", "[kind, place]")
    kind, place = "{name: kind, type: string}", "{name: place, type: int}"
    definitions.write_text(text.replace(kind, f"{kind}\n  - {place}"))
    rows = [
        {"ts": f"2013-11-03T00:{n % 60:02d}:00Z", "kind": f"k{n % 7}", "place": n % 300, "price": "1"}
        for n in range(600)
    ]
    sample = tmp_path / f"{cube}.ndjson"
    sample.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shell(services, "create", str(definitions), "--enable")
    shell(services, "produce", str(sample))
    with client(services) as asking:
        count = f"SELECT COUNT(*) FROM {cube}"
        wait_for("all is read", lambda: asking.query(count).positions == {cube: {0: 600}})
        for _ in range(5):
            asking.query(f"SELECT kind, SUM(price) FROM {cube} WHERE kind <> 'k1' GROUP BY kind")

    of_file = json.loads(shell(services, "cube", "size", str(definitions), "--sample", str(sample), "--json"))
    of_topic = json.loads(shell(services, "cube", "size", str(definitions), "--json"))
    assert of_topic == of_file
    (base,) = of_topic["cuboids"]
    groups = len({(row["kind"], row["place"]) for row in rows})
    assert base["dimensions"] == ["hour_start", "kind", "place"]
    assert base["rows"] == pytest.approx(groups, rel=0.05)  # the last second of the hour has no event
    assert "a segment" in shell(services, "cube", "size", str(definitions), "--last", "100")

    advised = json.loads(shell(services, "cube", "advise", cube, "--json"))
    first = advised["advice"][0]
    assert (first["dimensions"], first["rows"]) == (["kind"], 7)
    assert first["statements"] >= 5
    assert first["saved_rows"] >= 5 * (groups - 7)
    assert advised["rows_read_after"] < advised["rows_read_before"]
    shown = shell(services, "cube", "advise", cube, "--most", "1")
    assert "- include: [kind]\n  mandatory: [kind]\n" in shown
    nothing = commands.ended(services.environment, "cube", "advise", "nowhere")
    assert nothing.returncode != 0
    assert "nowhere" in nothing.stderr


def test_the_mysql_endpoint_keeps_to_its_options(services: Services, certificates: Certificates) -> None:
    def connect(**options: object) -> pymysql.connections.Connection:
        port = int(services.environment["RTOLAP_QUERY_MYSQL_PORT"])
        return pymysql.connections.Connection(
            host="127.0.0.1", port=port, user=USER, password=PASSWORD, **options
        )

    with pytest.raises(pymysql.err.MySQLError) as caught:
        connect(ssl_disabled=True)
    assert caught.value.args[0] == 3159
    trusted = {"ca": str(certificates.authority), "verify_mode": "required"}
    with connect(ssl=trusted) as one, connect(ssl=trusted) as other:
        with pytest.raises(pymysql.err.OperationalError, match="at most 2") as refused:
            connect(ssl=trusted)
        assert refused.value.args[0] == 1040
        for connection in (one, other):
            with connection.cursor() as cursor:
                cursor.execute("select 41 + 1")
                assert cursor.fetchall() == ((42,),)


def test_each_process_shows_what_it_has_done(
    services: Services, tmp_path: Path, unique_name: str, create_topic: Callable[..., str]
) -> None:
    """Coordinator, receiver and query service, the first two found as Prometheus finds them."""
    cube, trusted = unique_name, services.environment["RTOLAP_QUERY_CA"]
    leader = services.environment["RTOLAP_COORDINATORS"]
    query = f"https://127.0.0.1:{services.environment['RTOLAP_QUERY_HTTP_PORT']}"
    targets = httpx.get(
        f"{leader}/api/v1/metrics-targets", headers={"Authorization": f"Bearer {TOKEN}"}
    ).json()
    receiver = next(one["targets"][0] for one in targets if one["labels"].get("receiver") == "r1")
    assert [f"http://{one['targets'][0]}" for one in targets if len(one["labels"]) == 1] == [leader]
    for page in (leader, f"http://{receiver}", query):
        assert httpx.get(f"{page}/metrics", verify=False).status_code == 401

    create_topic(cube)
    definitions = define_prices(tmp_path, cube, zone="America/New_York")
    rows = [json.dumps({"ts": "2013-11-03T00:10:00-04:00", "kind": "pen", "price": "1.10"})] * 5
    (tmp_path / f"{cube}.ndjson").write_text("".join(row + "\n" for row in [*rows, "no event"]))
    before = scrape(query, TOKEN, ca_file=trusted)
    shell(services, "create", str(definitions), "--enable")
    shell(services, "produce", str(tmp_path / f"{cube}.ndjson"))
    with client(services) as asking:
        count = f"SELECT COUNT(*) FROM {cube}"
        wait_for("all is read", lambda: asking.query(count).positions == {cube: {0: 6}})
        with pytest.raises(QueryError):
            asking.query("SELECT nothing FROM nowhere")

    after = scrape(query, TOKEN, ca_file=trusted)
    queries = "rtolap_query_queries_total"
    assert after(queries, outcome="ok") > before(queries, outcome="ok")
    assert after(queries, outcome="unknown_table") == before(queries, outcome="unknown_table") + 1
    assert after("rtolap_query_partial_rows_total", cube=cube) >= 1
    assert after("rtolap_query_rows_answered_total") > before("rtolap_query_rows_answered_total")
    assert after("rtolap_query_queries_running") == 0

    took = scrape(f"http://{receiver}", TOKEN)
    assert took("rtolap_receiver_events_total", cube=cube) == 5
    assert took("rtolap_receiver_refused_records_total", cube=cube) == 1
    assert took("rtolap_receiver_lag_records", cube=cube) == 0

    def consumes() -> bool:  # a step after all is read
        state = scrape(f"http://{receiver}", TOKEN)
        return state("rtolap_receiver_consumer_state", cube=cube, state="CONSUMING") == 1

    wait_for("it has caught up", consumes)
    assert took("rtolap_receiver_flight_call_seconds_count", method="do_get", outcome="ok") >= 1

    led = scrape(leader, TOKEN)
    assert led("rtolap_coordinator_leading") == 1
    beats = {"method": "POST", "route": "/api/v1/receivers/{receiver_id}/heartbeat", "status": "200"}
    assert led("rtolap_coordinator_http_requests_total", **beats) >= 1
    assert led("rtolap_coordinator_lag_records", receiver="r1", cube=cube) == 0
