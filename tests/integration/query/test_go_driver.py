"""go-sql-driver/mysql over the MySQL server; `go_client/main.go` asks one statement a run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from rtolap.stack.artifacts import cache_dir

from tests.support.query.query_endpoints import PASSWORD, SLOW, USER, Endpoints

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
SOURCE = Path(__file__).parent / "go_client"
BUILD_TIMEOUT_S = 600
ASK_TIMEOUT_S = 180
FOR_EVER_MS = 120_000
TYPES = (
    "select 7 as whole, 1.50 as exact, 0.25e0 as near, 'Köln – 日本 😀' as town, null as nothing, "
    "date '2013-01-02' as day, timestamp '2013-01-02 03:04:05.000006' as moment, "
    "cast('-30:00:01' as time) as span, true as yes"
)
TEXTS = ["7", "1.50", "0.25", "Köln – 日本 😀", "<nil>", "2013-01-02", "2013-01-02 03:04:05.000006"]
NAMES = ["whole", "exact", "near", "town", "nothing", "day", "moment", "span", "yes"]
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by Go's own tool, whose caches are kept beside the other downloads."""
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    assert go is not None, "Go is needed, on Debian: apt-get install golang-go"
    built = tmp_path_factory.mktemp("go") / "go_client"
    caches = {"GOCACHE": str(cache_dir() / "go" / "build"), "GOMODCACHE": str(cache_dir() / "go" / "modules")}
    command = [go, "build", "-modcacherw", "-buildvcs=false", "-o", str(built), "."]
    for is_last in (False, False, True):  # a download may fail
        done = subprocess.run(
            command,
            cwd=SOURCE,
            env={**os.environ, **caches, "CGO_ENABLED": "0", "GOWORK": "off"},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode == 0:
            break
        assert not is_last, done.stderr
    return built


@pytest.fixture(scope="module")
def ask(program: Path, endpoints: Endpoints) -> Ask:
    def ask_one(
        sql: str, *values: str, way: str = "query", timeout_ms: int = FOR_EVER_MS, **options: str
    ) -> dict[str, Any]:
        """`options`: of the driver, in its DSN."""
        settings = {"timeout": "60s", "readTimeout": "120s", "writeTimeout": "60s", **options}
        listed = "&".join(f"{name}={quote(value, safe='')}" for name, value in settings.items())
        dsn = f"{USER}:{PASSWORD}@tcp(127.0.0.1:{endpoints.mysql_port})/rtolap?{listed}"
        done = subprocess.run(
            [str(program), dsn, way, str(timeout_ms), sql, *values],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    return ask_one


def test_every_type_arrives_as_text_and_in_binary(ask: Ask) -> None:
    as_text, in_binary = ask(TYPES), ask(TYPES, way="prepared")
    for said in (as_text, in_binary):
        assert said.get("error") is None
        assert said["columns"] == NAMES
        assert said["types"][1:4] == ["DECIMAL", "DOUBLE", "VARCHAR"]
        assert said["types"][5:8] == ["DATE", "DATETIME", "TIME"]
        ((*first, span, yes),) = said["rows"]
        assert [text for _, text in first] == TEXTS
        assert span[1].removesuffix(".000000") == "-30:00:01"  # all digits that there may be, in binary
        assert yes[1] == "1"
    assert [kind for kind, _ in as_text["rows"][0][:2]] == ["[]uint8", "[]uint8"]
    assert [kind for kind, _ in in_binary["rows"][0][:3]] == ["int64", "[]uint8", "float64"]


@pytest.mark.parametrize("way", ["query", "prepared"])
def test_times_are_parsed_where_the_dsn_says_so(ask: Ask, way: str) -> None:
    said = ask(TYPES, way=way, parseTime="true")
    assert said["rows"][0][5:7] == [
        ["time.Time", "2013-01-02T00:00:00Z"],
        ["time.Time", "2013-01-02T03:04:05.000006Z"],
    ]
    midnight = ask("select min(day_start) from flights", way=way, parseTime="true")
    assert midnight["rows"] == [[["time.Time", "2013-01-01T00:00:00Z"]]]


@pytest.mark.parametrize("options", [{}, {"interpolateParams": "true"}], ids=["bound", "interpolated"])
@pytest.mark.parametrize("way", ["query", "prepared"])
def test_values_are_bound_a_null_first_among_them(ask: Ask, way: str, options: dict[str, str]) -> None:
    said = ask(
        "select ? as a, ? as b, count(*) as n from airlines where carrier <> ? or ? is null",
        *("null", "text:ö'\"\\", "text:AA", "null"),
        way=way,
        **options,
    )
    assert [[text for _, text in row] for row in said["rows"]] == [["<nil>", "ö'\"\\", "3"]]
    condition = "carrier = {} and gate >= {} and fare_class <= {} and day_start >= {}"
    count = "select count(*), sum(delay) from flights where " + condition
    written = ask(count.format("'AA'", "1", "1.25", "'2013-01-02'"))
    bound = ask(
        count.format(*"????"),
        *("text:AA", "int:1", "float:1.25", "time:2013-01-02T00:00:00Z"),
        way=way,
        **options,
    )
    assert bound.get("error") is None
    assert [[text for _, text in row] for row in bound["rows"]] == [
        [text for _, text in row] for row in written["rows"]
    ]
    assert int(written["rows"][0][0][1]) > 0


@pytest.mark.parametrize("options", [{}, {"interpolateParams": "true"}], ids=["bound", "interpolated"])
@pytest.mark.parametrize("way", ["query", "prepared"])
def test_bytes_stay_bytes_and_compare_as_the_text_that_they_are(
    ask: Ask, way: str, options: dict[str, str]
) -> None:
    said = ask(
        "select hex(?) as a, hex(?) as b, count(*) as n from airlines where carrier = ? or carrier = ?",
        *(f"bytes:{value.hex()}" for value in (b"\0\xff'\\\x1a\n\x80", "ö'".encode(), b"AA", b"\xfe")),
        way=way,
        **options,
    )
    assert said.get("error") is None
    assert [[text for _, text in row] for row in said["rows"]] == [["00FF275C1A0A80", "C3B627", "1"]]


def test_rows_come_in_order_and_no_rows_are_no_error(ask: Ask) -> None:
    said = ask("select carrier, count(*) n from flights group by carrier order by carrier", way="prepared")
    assert len(said["rows"]) == 6
    assert sum(int(row[1][1]) for row in said["rows"]) == 400
    nothing = ask("select carrier from airlines where carrier = ?", "text:nobody", way="prepared")
    assert (nothing["columns"], nothing["rows"], nothing.get("error")) == (["carrier"], None, None)


@pytest.mark.parametrize("way", ["query", "prepared"])
def test_an_error_has_its_number_and_the_connection_goes_on(ask: Ask, way: str) -> None:
    for sql, number in (
        ("select * from nowhere", 1146),
        ("select nothing from flights", 1054),
        ("selec", 1064),
        ("select nofunction(1)", 1305),
    ):
        said = ask(sql, way=way)
        assert (said["number"], said["goes_on"]) == (number, True), said


def test_a_context_that_is_over_ends_the_statement(ask: Ask) -> None:
    for way in ("query", "prepared"):
        said = ask(SLOW, way=way, timeout_ms=1500)
        assert said.get("is_over"), said
        assert said["goes_on"]
        assert said["elapsed_ms"] < FOR_EVER_MS / 2


def test_variables_of_the_dsn_are_set_and_told(ask: Ask) -> None:
    said = ask('select @@sql_mode as "mode" from "airlines" limit 1', sql_mode="'ANSI_QUOTES'")
    assert said["columns"] == ["mode"]
    assert "ANSI_QUOTES" in said["rows"][0][0][1]
    local = ask("select from_unixtime(0) as moment, @@time_zone as zone", time_zone="'Europe/Berlin'")
    assert [text for _, text in local["rows"][0]] == ["1970-01-01 01:00:00.000000", "Europe/Berlin"]
    refused = ask("select 1", time_zone="'Europe/Nowhere'")
    assert refused["number"] == 1298
