"""The page in a real browser, on a real Airflow: what it shows, what it starts, and for whom."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect
from rtolap.airflow.page.rights import ANSWERED_ON_THE_PAGE, STARTED_BY_THE_PAGE

from tests.integration.airflow.browsing import (
    MARKUP,
    assert_accessible,
    assert_is_text,
    picture,
    serious_in,
)
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration

REFUSED = 130  # more than one answer of the page has


def test_an_operator_sees_services_cubes_and_receivers(
    sign_in: Callable[..., Page], history: Any, airflow: Any
) -> None:
    cube = history.stream.name
    page = sign_in("admin")
    services = page.get_by_role("table", name="Services")
    expect(services.get_by_role("row", name=re.compile("receiver r0 HEALTHY"))).to_be_visible()
    expect(services.get_by_role("row", name=re.compile("coordinator .* leads"))).to_be_visible()
    expect(page.get_by_text("No problems are known.")).to_be_visible()
    expect(page.get_by_test_id("age").first).to_have_text(re.compile(r"^\d+ m?s old$"))
    picture(page, "overview", "The overview: figures, problems, services")

    page.get_by_role("tab", name="Cubes").click()
    page.get_by_label("Find a cube by its name").fill(cube)
    page.get_by_role("button", name=cube).click()
    ready = len(history.ready)
    expect(page.get_by_role("img", name=re.compile(f"{ready} READY"))).to_be_visible()
    segments = page.get_by_role("table", name="Segments")
    for info in history.stream.segments().values():
        row = segments.get_by_role("row", name=re.compile(f"^{re.escape(info.segment)} {info.state}"))
        expect(row).to_be_visible()
    built = page.get_by_role("table", name="Spark processes").get_by_role("row", name=re.compile("^build"))
    expect(built.get_by_role("link", name="Log")).to_be_visible()
    newest = max(info.segment for info in history.stream.segments().values() if info.state == "READY")
    cuboids = airflow.coordinator.segment_cuboids(cube, newest).cuboids
    assert len(cuboids) > 0
    shown = page.get_by_role("table", name="Cuboids").locator("tbody").get_by_role("row")
    expect(shown).to_have_count(len(cuboids))
    for each in cuboids:
        assert each.bytes > 0
        name = ", ".join(each.dimensions) or "no dimension"
        expect(shown.get_by_text(name, exact=True)).to_be_visible()
    expect(page.get_by_text("The cube closes by its partitions")).to_be_visible()
    picture(page, "cube", "A cube: its segments along time, builds and partitions")
    link = page.url

    page.get_by_role("tab", name="Receivers").click()
    expect(page.get_by_role("row", name=re.compile("rs-0 r0 HEALTHY"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile(f"{cube} 0 r0"))).to_be_visible()
    picture(page, "receivers", "Receivers, their partitions and moves")

    page.goto(link)  # a link to a cube stands by itself
    expect(page.get_by_role("heading", name=cube)).to_be_visible()


def test_nothing_serious_is_in_the_way_of_a_screen_reader(sign_in: Callable[..., Page], history: Any) -> None:
    page = sign_in("viewer", f"?view=cubes&cube={history.stream.name}")
    for view in ("Cubes", "Receivers", "Overview"):
        page.get_by_role("tab", name=view).click()
        expect(page.get_by_test_id("age").first).to_be_visible()
        assert_accessible(page)


def test_a_front_end_that_is_not_there_is_said_and_the_loaders_are_shown_all_the_same(
    sign_in: Callable[..., Page], airflow: Any
) -> None:
    page = sign_in("viewer", "?view=loads")
    said = page.get_by_role("status").get_by_text(re.compile("no front end took"))
    expect(said).to_be_visible()
    assert_accessible(page)
    page.get_by_role("tab", name="Loaders").click()
    expect(page.get_by_test_id("age").first).to_be_visible()
    expect(page.get_by_role("region", name="Loaders").first).to_be_visible()
    assert_accessible(page, "no-front-end")


def test_the_page_says_how_long_records_take_until_answers_have_them(
    sign_in: Callable[..., Page], stream: Any, airflow: Any
) -> None:
    began_s = time.monotonic()
    stream.send(1)
    airflow.until("answer that holds everything", stream.answer)

    def measured() -> list[int] | None:
        reports = [each.cubes.get(stream.name) for each in airflow.coordinator.cluster(stream.name).receivers]
        return [each.freshness_ms for each in reports if each and each.freshness_ms is not None] or None

    (delay_ms,) = airflow.until("freshness in a heartbeat", measured)
    assert 0 <= delay_ms <= 1000 * (time.monotonic() - began_s)
    page = sign_in("viewer", f"?view=cubes&cube={stream.name}")
    figure = page.get_by_text("Freshness", exact=True).locator("xpath=..")
    expect(figure).to_have_text(re.compile(r"^Freshness(\d+ m?s|nothing new)$"))


def test_events_that_come_after_their_segment_closed_are_listed_by_place(
    sign_in: Callable[..., Page], stream: Any, airflow: Any
) -> None:
    stream.send(1)
    airflow.until("answer that holds everything", stream.answer)
    airflow.coordinator.close_segment(stream.name, stream.segment(1))

    def uploaded() -> bool | None:
        found = stream.segments().get(1)
        return True if found is not None and found.state == "REMOTE_PERSISTED" else None

    airflow.until("upload", uploaded)
    stream.send(1, events=8)
    airflow.until("answer that holds everything", stream.answer)
    page = sign_in("viewer", f"?view=cubes&cube={stream.name}")
    late = page.get_by_role("table", name="Late events").locator("tbody").get_by_role("row")
    expect(late).to_have_count(8)
    expect(late.first).to_contain_text(stream.segment(1))
    assert serious_in(page) == []


def test_a_day_is_rebuilt_by_runs_of_the_users_own_as_often_as_they_like(
    sign_in: Callable[..., Page], stream: Any, airflow: Any
) -> None:
    day = stream.start(2)[:10]
    started = []
    for user in ("ada", "admin"):  # of one day Airflow would have one run only
        page = sign_in(user, f"?view=cubes&cube={stream.name}")
        page.get_by_role("button", name="Rebuild a day").click()
        dialog = page.get_by_role("dialog")
        start = dialog.get_by_role("button", name="Start")
        expect(start).to_be_disabled()
        dialog.get_by_label("Day (UTC)").fill(day)
        start.click()
        link = dialog.get_by_role("status").get_by_role("link")
        expect(link).to_be_visible()
        started.append(link.inner_text())
    runs = {run["dag_run_id"]: run for run in airflow.runs("rtolap_backfill")}
    for user, run_id in zip(("ada", "admin"), started, strict=True):
        run = runs[run_id]
        assert run["conf"] == {
            "cube": stream.name,
            "from": f"{day}T00:00:00.000Z",
            "to": f"{stream.start(3)[:10]}T00:00:00.000Z",
        }
        assert (run["run_type"], run["triggering_user_name"]) == ("manual", user)


def test_a_purge_needs_the_name_of_the_cube_typed(
    sign_in: Callable[..., Page], stream: Any, airflow: Any
) -> None:
    before = stream.start(3)
    airflow.unpause("rtolap_purge")
    page = sign_in("admin", f"?view=cubes&cube={stream.name}")
    page.get_by_role("button", name="Purge").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label(re.compile("Ending at or before")).fill(before[:19])
    start = dialog.get_by_role("button", name="Start")
    typed = dialog.get_by_label(re.compile("to confirm"))
    typed.fill(stream.name[:-1])
    expect(start).to_be_disabled()
    typed.fill(stream.name)
    start.click()
    expect(dialog.get_by_role("status").get_by_role("link")).to_be_visible()

    def purged() -> bool | None:
        return True if airflow.coordinator.cube(stream.name).horizon_ms == stream.start_ms(3) else None

    airflow.until("purge", purged)
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_text("Purged up to")).to_be_visible()


def test_a_cube_is_paused_and_resumed_under_the_name_of_who_did_it(
    sign_in: Callable[..., Page], stream: Any, airflow: Any
) -> None:
    page = sign_in("ada", f"?view=cubes&cube={stream.name}")
    start_of(page, "Pause", reason="the topic is broken")
    expect(page.get_by_role("dialog").get_by_text("rtolap_cube_switch is paused in Airflow")).to_be_visible()
    airflow.unpause("rtolap_cube_switch")
    airflow.until("pause", lambda: True if airflow.coordinator.cube(stream.name).paused else None)
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.get_by_text(re.compile(r"^Paused .* by ada: the topic is broken$"))).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    picture(page, "paused")
    start_of(page, "Resume")
    airflow.until("resumption", lambda: None if airflow.coordinator.cube(stream.name).paused else True)
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.get_by_text(re.compile(r"^Resumed .* by ada\.$"))).to_be_visible()
    stream.send(1)
    assert airflow.until("an answer about what was sent", stream.answer) == stream.recount()


def start_of(page: Page, button: str, reason: str = "") -> None:
    """Press a button of a cube, and start its run."""
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    if reason:
        dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_role("status").get_by_role("link")).to_be_visible()


def test_a_segment_whose_build_has_failed_is_queued_again(
    sign_in: Callable[..., Page], stream: Any, airflow: Any
) -> None:
    client, cube = airflow.coordinator, stream.name
    stream.send(1)
    (segment,) = airflow.until("a segment", lambda: client.segments(cube) or None)
    client.close_segment(cube, segment.segment)

    def state() -> str:
        found: str = client.segment(cube, segment.segment).state
        return found

    airflow.until("upload", lambda: True if state() == "REMOTE_PERSISTED" else None)
    build = client.start_build(cube, segment.segment)
    client.fail_build(cube, segment.segment, build.build_id, f"no disk {MARKUP}")
    airflow.unpause("rtolap_requeue")
    page = sign_in("viewer", f"?view=cubes&cube={cube}")
    expect(page.get_by_text("build failed: no disk").first).to_be_visible()
    expect(page.get_by_role("button", name="Requeue")).to_have_count(0)
    page = sign_in("ada", f"?view=cubes&cube={cube}")
    start_of(page, "Requeue")

    def forgotten() -> bool | None:
        return True if client.segment(cube, segment.segment).build is None else None

    airflow.until("a queue without the failed build", forgotten)
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.get_by_role("button", name="Requeue")).to_have_count(0)
    assert_is_text(page)
    assert state() == "REMOTE_PERSISTED"


def test_who_may_not_start_a_dag_sees_no_button_for_it(
    sign_in: Callable[..., Page], stream: Any, airflow: Any
) -> None:
    page = sign_in("viewer", f"?view=cubes&cube={stream.name}")
    expect(page.get_by_test_id("age").first).to_be_visible()
    for name in ("Rebuild a day", "Plan a move", "Purge", "Pause", "Turn off"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    with airflow.signed_in("viewer") as client:
        rights = client.get("/rtolap/page/rights").raise_for_status().json()
        assert (rights["may_start"], rights["may_answer"], rights["may_ask"]) == ([], [], False)
        body: dict[str, Any] = {"logical_date": None, "conf": {}}
        for dag_id in STARTED_BY_THE_PAGE:
            assert client.post(f"/api/v2/dags/{dag_id}/dagRuns", json=body).status_code == 403, dag_id
    with airflow.signed_in("ada") as client:
        rights = client.get("/rtolap/page/rights").raise_for_status().json()
    assert set(rights["may_start"]) == set(STARTED_BY_THE_PAGE)
    assert set(rights["may_answer"]) == set(ANSWERED_ON_THE_PAGE)


def test_who_may_see_nothing_has_no_page(sign_in: Callable[..., Page], airflow: Any) -> None:
    page = sign_in("stranger")
    with page.expect_response(re.compile("/plugins")):  # which pages there are
        page.reload()
    expect(page.get_by_role("heading", name="rtolap")).to_have_count(0)
    with airflow.signed_in("stranger") as client:
        assert {
            client.get(f"/rtolap/page/{view}").status_code for view in ("overview", "cubes", "rights")
        } == {403}


def test_markup_in_a_record_is_shown_as_text(
    sign_in: Callable[..., Page], stream: Any, airflow: Any, kafka: str
) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(REFUSED):
        producer.produce(stream.name, f'{{"at": "{MARKUP}", "number": {number}}}'.encode(), partition=0)
    assert producer.flush(30) == 0

    def refused_all() -> bool | None:
        counts = airflow.coordinator.cube(stream.name).refused
        return True if sum(counts.values()) >= REFUSED else None

    airflow.until("refusals", refused_all)
    page = sign_in("viewer", f"?view=cubes&cube={stream.name}")
    expect(page.get_by_text("records are in no count").first).to_be_visible()
    refused = page.get_by_role("table", name="Refused events")
    expect(refused.get_by_role("row").nth(1)).to_contain_text("<img src=x")
    expect(page.get_by_role("button", name="Show refused records")).to_have_count(0)
    assert_is_text(page)
    path = f"/rtolap/page/cubes/{stream.name}/refused"
    with airflow.signed_in("viewer") as client:
        assert client.get(path).status_code == 403

    def written() -> bool | None:
        """The dead letters are there, which are written after they are counted."""
        with airflow.signed_in("ada") as client:
            found = client.get(path).raise_for_status().json()
        return True if [each["offset"] for each in found["records"]][:1] == [REFUSED - 1] else None

    airflow.until("the last dead letter", written)
    page = sign_in("ada", f"?view=cubes&cube={stream.name}")
    page.get_by_role("button", name="Show refused records").click()
    records = page.get_by_role("table", name="Refused records")
    newest = records.get_by_role("row").nth(1)
    expect(newest).to_contain_text(f'"number": {REFUSED - 1}')
    told = page.get_by_text(re.compile(f" records of {stream.name}.dead-letters"))
    older = page.get_by_role("button", name="Older ones")
    expect(older).to_be_visible()  # one answer has not all of them
    while older.count():
        before = told.inner_text()
        older.click()
        expect(told).not_to_have_text(before)
    expect(
        page.get_by_text(f"{REFUSED} records of {stream.name}.dead-letters. There are no older ones.")
    ).to_be_visible()
    assert_is_text(page)
    assert serious_in(page) == []
    picture(page, "refused")


def test_what_is_not_fresh_any_more_says_so(sign_in: Callable[..., Page], airflow: Any) -> None:
    page = sign_in("viewer")
    expect(page.get_by_role("table", name="Services")).to_be_visible()
    pid = airflow.components["coordinator"].pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        lost = page.get_by_role("status").get_by_text(re.compile("What is shown is .* old"))
        expect(lost).to_be_visible(timeout=patience_s(90_000))
        expect(page.get_by_role("table", name="Services")).to_be_visible()
        picture(page, "lost")
    finally:
        os.kill(pid, signal.SIGCONT)
    expect(lost).to_have_count(0, timeout=patience_s(90_000))
