"""The page's views of stored tables, loads and loaders, filled: real front end, storage node and loaders."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Locator, Page, expect
from rtolap.airflow.declared import RunningLoader, loader_labels
from rtolap.base.errors import Unavailable
from rtolap.protocols.agent.messages import ProcessSpec, RestartPolicy
from rtolap.protocols.loader.client import LoaderClient
from rtolap.protocols.loader.messages import EXIT_FAILED, EXIT_STOPPED, LoaderStatus, process_key
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import TableName, TabletReplicaInfo
from rtolap.stack.components import COMPONENTS
from rtolap.stack.ports import HOST, free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.secrets import SQL_USER, read_secret

from tests.integration.airflow.browsing import (
    MARKUP,
    assert_accessible,
    assert_is_text,
    picture,
    serious_in,
)
from tests.support.airflow_stack import AirflowStack
from tests.support.kafka_topics import create_topic
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration

DATABASE, TABLE = "paged", "hits"
BUCKETS = 2
FILES_MIN = 4  # of like size, which a compaction joins
GOOD, WRONG = 30, 3  # records that the loader finds
REJECTED = 150  # rows of one load, for one reason
LATE = (7_001, 7_002)  # of the loader that refuses them
LETTERS_DAG = "rtolap_dead_letters"


@dataclass
class Stored:
    """A table of the stack's own front end and storage node, and loaders that its agent runs."""

    airflow: AirflowStack
    kafka: str
    folder: Path

    def load(self, label: str, body: str, **headers: str) -> dict[str, Any]:
        """Send a load, and return its answer."""
        port = self.airflow.around.ports["stream-load-body"]
        url = f"http://{HOST}:{port}/api/{DATABASE}/{TABLE}/_stream_load"
        password = read_secret(self.airflow.around.layout, "sql-password")
        named = {"label": label, "column_separator": ",", "strict_mode": "true", **headers}
        answer = httpx.put(
            url,
            content=body,
            headers=named,
            auth=(SQL_USER, password),
            timeout=patience_s(60),
            trust_env=False,
        )
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def front_ends(self) -> StoredTablesClient:
        url = f"http://{HOST}:{self.airflow.around.ports['stream-load']}"
        return StoredTablesClient([url], self.airflow.token)

    def loader(self, name: str, tolerance_percent: int, records: list[bytes], **more: object) -> int:
        """Create a loader, have the agent run it over the records, and return its port. `more`: of its
        definition."""
        create_topic(self.kafka, NewTopic(name, num_partitions=1, replication_factor=1))
        producer = Producer({"bootstrap.servers": self.kafka})
        for value in records:
            producer.produce(name, value, partition=0)
        assert producer.flush(30) == 0
        layout, ports = self.airflow.around.layout, self.airflow.around.ports
        sink = {
            "urls": [f"http://{HOST}:{ports['stream-load']}"],
            "user": SQL_USER,
            "password_file": str(layout.secret("sql-password")),
            "format": "json",
        }
        loader = {
            "kind": "loader",
            "name": name,
            "topic": name,
            "database": DATABASE,
            "table": TABLE,
            "batch": {"interval_ms": 300},
            "rejects": {"tolerance_percent": tolerance_percent},
            "sink": sink,
            **more,
        }
        (self.folder / f"{name}.yaml").write_text(json.dumps(loader))
        created = self.airflow.command("rtolap", "loader", "create", str(self.folder / f"{name}.yaml"))
        assert created.returncode == 0, created.stderr
        port = free_port()
        spec = ProcessSpec(
            generation=1,
            argv=("rtolap", "loader", "run", name, "--port", str(port)),
            restart=RestartPolicy(final_codes=(EXIT_STOPPED, EXIT_FAILED)),
            labels=loader_labels(RunningLoader(name, port)),
        )
        self.airflow.agent.ensure(process_key(name), spec)
        return port


@pytest.fixture(scope="module")
def stored(airflow: AirflowStack, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    processes = [ManagedProcess(COMPONENTS[name].spec(airflow.around)) for name in ("stream-load", "storage")]
    try:
        for process in processes:
            process.start()
        airflow.sql(f"CREATE DATABASE {DATABASE}")
        airflow.sql(
            f"CREATE TABLE {DATABASE}.{TABLE} (id INT NOT NULL, host VARCHAR(100)) DUPLICATE KEY(id) "
            f"DISTRIBUTED BY HASH(id) BUCKETS {BUCKETS} PROPERTIES ('replication_num' = '1')"
        )
        yield Stored(airflow, kafka, tmp_path_factory.mktemp("page-loads"))
    finally:
        for process in reversed(processes):
            process.stop()


@pytest.fixture(scope="module")
def loads(stored: Stored) -> dict[str, int]:
    """Loads by state."""
    assert stored.load("day:1", "1,a\n2,b")["Status"] == "Success"
    assert stored.load("dayX1", "3,c")["Status"] == "Success"
    assert stored.load("held", "4,d", two_phase_commit="true")["Status"] == "Success"
    refused = stored.load("rows-refused", "x,e\n5,f")
    assert (refused["Status"], refused["NumberFilteredRows"]) == ("Fail", 1)
    assert stored.load("marked", "6,g", where=f"nope = '{MARKUP}'")["Status"] == "Fail"
    return {"VISIBLE": 2, "PRECOMMITTED": 1, "ABORTED": 2}


def figure(page: Page, label: str) -> Locator:
    """Return the figure of this label, with its value."""
    return page.get_by_text(label, exact=True).locator("xpath=..")


def found(page: Page, label: str) -> Locator:
    """Ask for the loads whose labels contain the text; return the table."""
    page.get_by_label("Database").select_option(DATABASE)
    page.get_by_label("Part of a label").fill(label)
    page.get_by_role("button", name="Find loads").click()
    return page.get_by_role("table", name="Loads")


def row(table: Locator, *cells: str) -> Locator:
    """Return the row of the table that begins with these cells."""
    return table.get_by_role("row", name=re.compile("^" + " ".join(map(re.escape, cells))))


def test_stored_tables_are_shown_with_replicas_and_nodes_and_loads_with_their_states(
    sign_in: Callable[..., Page], loads: dict[str, int]
) -> None:
    page = sign_in("viewer", "?view=loads")
    tables = page.get_by_role("table", name="Stored tables")
    expect(row(tables, f"{DATABASE}.{TABLE}", "duplicate", "1")).to_be_visible()
    nodes = page.get_by_role("table", name="Storage nodes")
    expect(row(nodes, "local", "OPEN", str(BUCKETS))).to_be_visible()

    shown = found(page, "")
    for state, count in loads.items():
        expect(figure(page, f"Loads {state}")).to_contain_text(str(count))
    expect(row(shown, "day:1", "VISIBLE", TABLE)).to_be_visible()
    expect(row(shown, "held", "PRECOMMITTED", TABLE)).to_contain_text("runs")
    expect(row(shown, "rows-refused", "ABORTED", TABLE)).to_contain_text("too many filtered rows")
    expect(row(shown, "marked", "ABORTED", TABLE)).to_contain_text(MARKUP)
    assert_is_text(page)
    assert_accessible(page, "loads")

    expect(found(page, "day").get_by_role("row")).to_have_count(3)  # two, and the head
    expect(found(page, "day:").get_by_role("row")).to_have_count(2)
    found(page, "%")
    expect(page.get_by_text("No load has such a label.")).to_be_visible()

    page.get_by_role("button", name=f"{DATABASE}.{TABLE}").click()
    expect(page.get_by_role("heading", name=f"{DATABASE}.{TABLE}")).to_be_visible()
    partitions = page.get_by_role("table", name="Partitions of the table")
    whole = partitions.get_by_role("row", name=re.compile("READABLE"))
    expect(whole).to_contain_text(f"{BUCKETS} of {BUCKETS}")
    replicas = page.get_by_role("table", name="Replicas of tablets")
    expect(replicas.get_by_role("row")).to_have_count(BUCKETS + 1)  # and the head
    expect(row(replicas, "all")).to_have_count(BUCKETS)
    expect(figure(page, "Compactions that run")).to_be_visible()
    expect(figure(page, "Replicas with a problem")).to_contain_text("0")
    assert_accessible(page, "stored-table")


def test_a_compaction_is_shown_with_what_it_joins_and_its_age(
    sign_in: Callable[..., Page], stored: Stored, loads: dict[str, int]
) -> None:
    name = TableName(DATABASE, TABLE)

    def replicas() -> list[TabletReplicaInfo]:
        with stored.front_ends() as front_ends:
            found = front_ends.tablets(name)
        assert found.missing == {}
        return sorted(found.replicas, key=lambda each: each.bucket)

    for number in range(FILES_MIN):
        ids = "\n".join(f"{100 + number * 10 + place},c" for place in range(10))
        assert stored.load(f"many-{number}", ids)["Status"] == "Success"
    stored.airflow.until(
        "the node has compacted both tablets",
        lambda: all(each.compacted_ms and not each.pending_files for each in replicas()) or None,
    )
    page = sign_in("viewer", "?view=loads")
    page.get_by_role("button", name=f"{DATABASE}.{TABLE}").click()
    table = page.get_by_role("table", name="Replicas of tablets")
    for each in replicas():
        cells = row(table, each.partition, str(each.bucket)).get_by_role("cell")
        expect(cells.nth(3)).to_have_text("nothing to do")
        expect(cells.nth(4)).to_have_text("0")
        expect(cells.nth(6)).to_have_text(str(each.files))
        expect(cells.nth(7)).to_have_text(str(each.rows))
        expect(cells.nth(10)).to_have_text(re.compile("ago"))
    assert serious_in(page) == []
    picture(page, "compaction", "A stored table: partitions, replicas and their compaction")
    listed = stored.airflow.command("rtolap", "tables", "tablets", f"{DATABASE}.{TABLE}", "--json")
    assert [each["compacted"] is not None for each in json.loads(listed.stdout)] == [True] * BUCKETS


def test_rejected_rows_of_a_load_are_shown_by_reason_and_page(
    sign_in: Callable[..., Page], stored: Stored
) -> None:
    wrong = "\n".join(f"{MARKUP}{number},h" for number in range(REJECTED))
    answer = stored.load("many-wrong", f"5001,fine\n{wrong}\n,none", max_filter_ratio="1")
    assert (answer["Status"], answer["NumberFilteredRows"]) == ("Success", REJECTED + 1)
    page = sign_in("viewer", "?view=loads")
    expect(row(found(page, "many-wrong"), "many-wrong", "VISIBLE")).to_be_visible()
    expect(page.get_by_role("button", name="Rejected rows of many-wrong")).to_have_count(0)
    with stored.airflow.signed_in("viewer") as client:
        asked = client.get(f"/rtolap/page/loads/errors/{DATABASE}", params={"label": "many-wrong"})
    assert asked.status_code == 403
    page = sign_in("admin", "?view=loads")
    shown = found(page, "many-wrong")
    expect(row(shown, "many-wrong", "VISIBLE").get_by_role("cell").nth(5)).to_have_text("1")
    page.get_by_role("button", name="Rejected rows of many-wrong").click()
    table = page.get_by_role("table", name="Rejected rows")
    expect(page.get_by_text(f"Rows 1 to 100 of {REJECTED + 1}")).to_be_visible()
    expect(table.get_by_text(f"{MARKUP}0,h").first).to_be_visible()
    assert_is_text(page)
    page.get_by_role("button", name="Later rows").click()
    expect(page.get_by_text(f"Rows 101 to {REJECTED + 1} of {REJECTED + 1}")).to_be_visible()
    reasons = page.get_by_label("Rejected for")
    reasons.select_option(index=2)  # the rarer one
    expect(table.get_by_role("row")).to_have_count(2)
    expect(table).to_contain_text(",none")
    assert serious_in(page) == []
    picture(page, "rejected-rows")


@pytest.fixture(scope="module")
def loaders(stored: Stored) -> tuple[str, str]:
    """The names of a loader that has read everything, and of one that has failed by a refused record."""
    airflow, unique = stored.airflow, uuid.uuid4().hex[:6]
    well, fails = f"well_{unique}", f"fails_{unique}"
    rows = [json.dumps({"id": number, "host": "h"}).encode() for number in range(GOOD)]
    wrong = json.dumps({"id": MARKUP, "host": MARKUP}).encode()
    port = stored.loader(well, 50, rows + [wrong] * WRONG)

    def read() -> LoaderStatus | None:
        try:
            status = client.status()
        except Unavailable:
            return None  # its process is starting
        return status if status.rows_loaded + status.rows_rejected == GOOD + WRONG else None

    with LoaderClient(f"http://{HOST}:{port}", airflow.token) as client:
        airflow.until("all records loaded or refused", read)
    stored.loader(fails, 0, [wrong])
    airflow.until_process(process_key(fails), "FAILED")
    return well, fails


def test_loaders_are_shown_with_their_figures_and_why_one_has_failed(
    sign_in: Callable[..., Page], loaders: tuple[str, str], kafka: str
) -> None:
    well, fails = loaders
    page = sign_in("viewer", "?view=loaders")
    table = page.get_by_role("table", name="Loaders")
    cells = row(table, well, "RUNNING").get_by_role("cell")
    expect(cells.nth(3)).to_have_text(well)  # its topic
    expect(cells.nth(4)).to_have_text(f"{DATABASE}.{TABLE}")
    expect(cells.nth(5)).to_have_text("0")  # records behind
    expect(cells.nth(7)).to_have_text(str(GOOD))
    expect(cells.nth(8)).to_have_text(str(WRONG))
    expect(cells.nth(9)).to_have_text(re.compile("ago"))
    failed = row(table, fails, "FAILED")
    expect(failed).to_contain_text("1 of 1 records of a batch are refused")
    assert_is_text(page)
    assert_accessible(page, "loaders")


@pytest.fixture(scope="module")
def refusing(stored: Stored) -> str:
    """The name of a loader that has refused two records for a column that is missing, and one for ever."""
    name = f"refuses_{uuid.uuid4().hex[:6]}"
    late = [json.dumps({"id": number, "host": MARKUP, "late": 1}).encode() for number in LATE]
    port = stored.loader(name, 100, [*late, json.dumps({"id": "x"}).encode()], unknown_columns="reject")

    def read() -> LoaderStatus | None:
        try:
            status = client.status()
        except Unavailable:
            return None  # its process is starting
        return status if status.rows_rejected == len(LATE) + 1 else None

    with LoaderClient(f"http://{HOST}:{port}", stored.airflow.token) as client:
        stored.airflow.until("all records refused", read)
    return name


def letters_shown(page: Page, loader: str) -> Locator:
    page.get_by_role("button", name=f"Dead letters of {loader}").click()
    table = page.get_by_role("table", name="Dead letters")
    expect(table).to_be_visible()
    return table


def started(page: Page, action: str, loader: str, **filled: str) -> None:
    """Start an action of the page, with the name of the loader typed; wait until its run has succeeded."""
    page.get_by_role("button", name=action, exact=True).click()
    dialog = page.get_by_role("dialog")
    for label, text in filled.items():
        dialog.get_by_label(re.compile(label)).fill(text)
    start = dialog.get_by_role("button", name="Start")
    typed = dialog.get_by_label(re.compile("to confirm"))
    typed.fill(loader[:-1])
    expect(start).to_be_disabled()
    typed.fill(loader)
    start.click()
    expect(dialog.get_by_role("status").get_by_role("link")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()


def test_dead_letters_are_replayed_once_or_dropped_by_who_may(
    sign_in: Callable[..., Page], stored: Stored, refusing: str
) -> None:
    airflow = stored.airflow
    airflow.unpause(LETTERS_DAG)

    def count() -> int:
        found = airflow.sql(f"SELECT count(*) FROM {DATABASE}.{TABLE} WHERE id >= {min(LATE)}")
        return int(found["rows"][0][0])

    page = sign_in("viewer", "?view=loaders")
    expect(row(page.get_by_role("table", name="Loaders"), refusing)).to_be_visible()
    for name in (f"Dead letters of {refusing}", "Replay", "Drop"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    with airflow.signed_in("viewer") as client:
        assert client.get(f"/rtolap/page/loaders/{refusing}/dead-letters").status_code == 403
        refused = client.post(f"/api/v2/dags/{LETTERS_DAG}/dagRuns", json={"logical_date": None, "conf": {}})
    assert refused.status_code == 403

    page = sign_in("admin", "?view=loaders")
    table = letters_shown(page, refusing)
    expect(table.get_by_role("row")).to_have_count(len(LATE) + 2)  # and the head
    expect(figure(page, "Letters OPEN")).to_contain_text(str(len(LATE) + 1))
    expect(table.get_by_text("unknown_column").first).to_be_visible()
    expect(table.get_by_text(MARKUP).first).to_be_visible()
    page.get_by_label("Refused for").select_option("wrong_type")
    expect(table.get_by_role("row")).to_have_count(2)
    expect(figure(page, "Refused for unknown_column")).to_contain_text(str(len(LATE)))
    page.get_by_label("Refused for").select_option("")
    expect(table.get_by_role("row")).to_have_count(len(LATE) + 2)
    assert_is_text(page)
    assert serious_in(page) == []
    picture(page, "dead-letters", "A loader and its dead letters")
    airflow.sql(f"ALTER TABLE {DATABASE}.{TABLE} ADD COLUMN late INT")
    for _ in range(2):  # the second finds nothing that it could load again
        started(page, "Replay", refusing)
    runs = [run["dag_run_id"] for run in airflow.runs(LETTERS_DAG)]
    assert len(runs) == 2
    for run_id in runs:
        airflow.until_run(LETTERS_DAG, run_id)
    expect(figure(page, "Letters REPLAYED")).to_contain_text(str(len(LATE)))
    shown = page.get_by_role("table", name="Dead letters")
    again = shown.get_by_role("row", name=re.compile("OPEN wrong_type"))
    expect(again).to_contain_text("refused again")
    assert count() == len(LATE)

    started(page, "Drop", refusing, Why="not ours")
    for run in airflow.runs(LETTERS_DAG):
        airflow.until_run(LETTERS_DAG, run["dag_run_id"])
    expect(figure(page, "Letters DROPPED")).to_contain_text("1")
    dropped = page.get_by_role("table", name="Dead letters").get_by_role("row", name=re.compile("DROPPED"))
    expect(dropped).to_contain_text("airflow:admin")
    expect(dropped).to_contain_text("not ours")
    assert count() == len(LATE)
    assert serious_in(page) == []
    picture(page, "dead-letters-done")
