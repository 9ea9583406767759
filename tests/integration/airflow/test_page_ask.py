"""The page's statements in a real browser: written, completed, drawn, cancelled and downloaded."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import Download, Locator, Page, expect

from tests.integration.airflow.browsing import (
    MARKUP,
    assert_accessible,
    assert_is_text,
    picture,
    serious_in,
)
from tests.support.airflow_stack import AirflowStack
from tests.support.cubes.day_stream import DayStream

pytestmark = pytest.mark.integration

# 2^40 rows: no engine finishes it within a test.
SLOW = "SELECT COUNT(*) FROM " + ", ".join(f"(SELECT 1 AS x UNION ALL SELECT 2) t{i}" for i in range(40))
TEN = " UNION ALL ".join(f"SELECT {digit} AS x" for digit in range(10))
MANY = "SELECT a.x, b.x, c.x, d.x, e.x FROM " + ", ".join(f"({TEN}) {name}" for name in "abcde")
ROWS_MAX = 10_000


@pytest.fixture
def asked(stream: DayStream, airflow: AirflowStack) -> DayStream:
    """A cube whose events of two days are with the receiver."""
    stream.send(1, 2)
    airflow.until("answer that holds everything", stream.answer)
    return stream


def statement(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Statement")


def run(page: Page, sql: str) -> None:
    statement(page).fill(sql)
    page.get_by_role("button", name="Run", exact=True).click()


def rows(page: Page) -> Locator:
    """Return the rows of the answer that are in the document, without the head."""
    return page.get_by_role("table", name="Rows").locator("tbody").get_by_role("row")


def shown(page: Page) -> list[list[str]]:
    return [row.get_by_role("cell").all_inner_texts() for row in rows(page).all()]


def downloaded(page: Page, button: str, folder: Path) -> Path:
    with page.expect_download() as waited:
        page.get_by_role("button", name=button).click()
    download: Download = waited.value
    path = folder / download.suggested_filename
    download.save_as(path)
    return path


def by_shop(stream: DayStream) -> dict[str, tuple[int, Decimal]]:
    """Return events and the sum of prices of each shop, recounted; NULL as the page shows it."""
    found: dict[str, tuple[int, Decimal]] = {}
    for (_, shop), (events, price) in stream.recount().items():
        before = found.get(shop or "NULL", (0, Decimal(0)))
        found[shop or "NULL"] = (before[0] + events, before[1] + (price or 0))
    return found


def test_an_analyst_completes_names_sees_rows_and_pictures_and_downloads_the_same(
    sign_in: Callable[..., Page], asked: DayStream, tmp_path: Path
) -> None:
    cube, expected = asked.name, by_shop(asked)
    page = sign_in("ada", "?view=ask")
    text = statement(page)
    text.press_sequentially(f"SELECT shop, COUNT(*) AS n, SUM(price) AS total FROM {cube[:-2]}")
    expect(page.get_by_role("option", name=re.compile(f"^{cube}"))).to_be_visible()
    text.press("Tab")
    text.press_sequentially(" GROUP BY sho")
    expect(page.get_by_role("option", name=re.compile("^shop"))).to_be_visible()
    assert serious_in(page) == []
    picture(page, "ask-completion")
    text.press("Tab")
    text.press_sequentially(" ORDER BY 1 ")
    text.press("Escape")
    text.press("Control+Enter")
    expect(page.get_by_test_id("rows")).to_contain_text(f"{len(expected)} rows")
    found = {shop: (int(n), Decimal(total)) for shop, n, total in shown(page)}
    assert found == expected
    expect(page.locator("[data-null]")).to_have_count(1)
    expect(page.get_by_role("img", name=re.compile("^Bars of total over shop: 4 rows"))).to_be_visible()
    assert serious_in(page) == []
    picture(page, "ask-rows", "A statement, its rows and their picture")

    with downloaded(page, "CSV", tmp_path).open(newline="") as file:
        head, *lines = csv.reader(file)
    assert head == ["shop", "n", "total"]
    assert [[cell or "NULL" for cell in line] for line in lines] == shown(page)
    table = pa.ipc.open_stream(downloaded(page, "Arrow", tmp_path).read_bytes()).read_all()
    of_file = {each["shop"] or "NULL": (each["n"], each["total"]) for each in table.to_pylist()}
    assert of_file == expected

    page.get_by_role("button", name="Explain analyze", exact=True).click()
    plan = page.get_by_role("img", name=re.compile(f"^Plan: cube {cube}, .*receivers rs-0: r0.*rows read"))
    expect(plan).to_be_visible()
    expect(
        page.get_by_role("table", name="Rows").get_by_role("row", name=re.compile("^receivers"))
    ).to_be_visible()
    assert serious_in(page) == []
    picture(page, "ask-plan")

    run(page, f"SELECT day_start, COUNT(*) AS n FROM {cube} GROUP BY 1")
    expect(page.get_by_role("img", name=re.compile("^Line of n over day_start: 2 rows"))).to_be_visible()

    past = page.get_by_role("table", name="Your statements")
    # The newest statement moves those below it: a click before that meets another one.
    expect(past.get_by_role("row", name=re.compile("ok SELECT day_start")).first).to_be_visible()
    expect(past.get_by_role("row", name=re.compile("ok EXPLAIN ANALYZE SELECT")).first).to_be_visible()
    past.get_by_role("button", name=re.compile("^EXPLAIN ANALYZE")).first.click()
    expect(text).to_have_value(re.compile("^EXPLAIN ANALYZE SELECT shop"))


def test_a_click_meets_the_row_that_it_began_on_though_newer_ones_move_it(
    sign_in: Callable[..., Page],
) -> None:
    page = sign_in("ada", "?view=ask")
    past = page.get_by_role("table", name="Your statements")
    for sql in ("SELECT 1 AS pressed", "SELECT 2 AS shown"):
        run(page, sql)
        expect(past.get_by_role("row", name=re.compile(f"ok {sql}")).first).to_be_visible()
    button = past.get_by_role("button", name="SELECT 2 AS shown").first
    button.hover()
    page.mouse.down()
    statement(page).fill("SELECT 3 AS newest")
    statement(page).press("Control+Enter")
    expect(past.get_by_role("row", name=re.compile("ok SELECT 3 AS newest"))).to_be_visible()
    statement(page).fill("SELECT 4 AS written")
    page.mouse.up()
    past.get_by_role("button", name="SELECT 1 AS pressed").first.focus()  # the click has been handled by then
    expect(statement(page)).to_have_value("SELECT 4 AS written")


def test_markup_is_text_and_nulls_warnings_errors_and_cut_answers_are_said(
    sign_in: Callable[..., Page], asked: DayStream
) -> None:
    page = sign_in("ada", "?view=ask")
    run(page, f'SELECT "{MARKUP}" AS `<b>bold</b>`, NULL AS nothing, "NULL" AS text, 9007199254740993 AS big')
    expect(page.get_by_test_id("rows")).to_contain_text("1 row")
    assert shown(page) == [[MARKUP, "NULL", "NULL", "9007199254740993"]]
    expect(page.locator("[data-null]")).to_have_count(1)
    assert_is_text(page)
    assert_accessible(page)

    run(page, f"SELECT nope FROM {asked.name}")
    expect(page.get_by_role("alert")).to_contain_text("nope")
    run(page, "DROP DATABASE rtolap")
    expect(page.get_by_role("alert")).to_contain_text("airflow:ada has not the right")

    run(page, MANY)
    said = page.get_by_test_id("rows")
    expect(said).to_contain_text("10,000 rows")
    expect(said).to_contain_text("These are the first 10,000; there are more.")
    expect(page.get_by_role("button", name="CSV (the first 10,000 rows)")).to_be_visible()
    assert rows(page).count() < 100
    assert_accessible(page, "ask-many")

    page.context.clear_cookies()
    run(page, "SELECT 1")
    expect(page.get_by_role("alert")).to_contain_text("Your session has ended")


def test_a_statement_that_is_cancelled_ends_in_the_query_service_and_another_runs_beside_it(
    sign_in: Callable[..., Page], airflow: AirflowStack, receiver: None
) -> None:
    page = sign_in("ada", "?view=ask")
    run(page, SLOW)
    expect(page.get_by_text(re.compile("^Running for"))).to_be_visible()
    beside = page.context.new_page()
    beside.goto(page.url)
    run(beside, "SELECT 41 + 1 AS answer")
    expect(rows(beside)).to_have_text(["42"])

    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Cancelled: the query service ends the statement.")).to_be_visible()

    def logged() -> list[Any] | None:
        found = airflow.sql(
            "SELECT user_name, outcome FROM information_schema.query_log "
            "WHERE statement LIKE 'SELECT COUNT(*) FROM (SELECT 1 AS x UNION%'"
        )
        return found["rows"] or None

    assert airflow.until("end of the statement", logged) == [["airflow:ada", "query_interrupted"]]
    past = page.get_by_role("table", name="Your statements")
    expect(past.get_by_role("row", name=re.compile("query_interrupted SELECT COUNT")).first).to_be_visible()
    picture(page, "ask-cancelled")


def test_who_may_see_the_page_alone_may_not_ask(sign_in: Callable[..., Page], airflow: AirflowStack) -> None:
    page = sign_in("viewer", "?view=ask")
    expect(page.get_by_text("You may not ask")).to_be_visible()
    expect(statement(page)).to_have_count(0)
    with airflow.signed_in("viewer") as client:
        for path in ("answers", "arrow"):
            assert client.post(f"/rtolap/page/ask/{path}", json={"sql": "SELECT 1"}).status_code == 403
        for path in ("catalogue", "history"):
            assert client.get(f"/rtolap/page/ask/{path}").status_code == 403
