"""Ids of requests: bound at a door, carried by threads and headers, and in each line of a log."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import multiprocessing
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rtolap.base.ids import (
    IDS_MAX,
    VALUE_CHARS_MAX,
    CarryingPool,
    bound,
    carried,
    forget,
    handed_over,
    ids,
    new_id,
    note,
    of_parent,
    received,
    sent,
)
from rtolap.base.logs import JsonLines, LogFormat, TextLines

NAMES = st.from_regex(r"[a-z]{1,8}", fullmatch=True)


@given(st.dictionaries(NAMES, st.text(min_size=1, max_size=200), max_size=IDS_MAX + 3))
def test_what_is_sent_is_received_and_fits_a_header(given_ids: dict[str, str]) -> None:
    with bound(given_ids):
        known, header = dict(ids()), sent()
    assert received(header) == known
    assert len(known) == min(len(given_ids), IDS_MAX)
    assert all(len(value) <= VALUE_CHARS_MAX for value in known.values())
    assert header.isascii()
    assert header.isprintable()


@given(st.text(max_size=300))
def test_whatever_comes_in_a_header_is_one_line_of_a_log(header: str) -> None:
    found = received(header)
    with bound(found):
        line = logged("text", "hello")
    assert line.count("\n") == 1
    assert len(found) <= IDS_MAX


def test_ids_of_a_request_end_with_it_and_those_of_its_caller_come_back() -> None:
    assert ids() == {}
    note(lost="there is no request")
    assert ids() == {}
    with bound(statement="a"):
        with bound(cube="c"):
            note(segment="s")
            assert ids() == {"statement": "a", "cube": "c", "segment": "s"}
        assert ids() == {"statement": "a"}
    assert ids() == {}
    assert new_id() != new_id()


def test_threads_of_a_pool_work_for_those_who_submit_and_what_they_note_is_known_to_all() -> None:
    seen: list[dict[str, str]] = []
    with CarryingPool(2) as pool:
        for number in range(20):
            with bound(statement=number):
                pool.submit(lambda number=number: note(load=number)).result()
                pool.submit(lambda: seen.append(dict(ids()))).result()
        pool.submit(lambda: seen.append(dict(ids()))).result()
    assert seen == [{"statement": str(number), "load": str(number)} for number in range(20)] + [{}]


def test_a_function_that_is_carried_works_for_its_caller_in_any_thread() -> None:
    seen: list[dict[str, str]] = []
    with bound(plan="p"):
        run = carried(lambda: seen.append(dict(ids())))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [{"plan": "p"}]


@given(st.dictionaries(NAMES, st.text(min_size=1, max_size=200), max_size=IDS_MAX))
def test_a_child_process_works_for_what_its_parent_works_for(given_ids: dict[str, str]) -> None:
    with bound(given_ids):
        known, environment = dict(ids()), handed_over()
    assert of_parent({"PATH": "/bin", **environment}) == known
    assert bool(environment) == bool(known)


def test_what_is_over_is_named_no_more_and_the_rest_is() -> None:
    forget("move")  # without a request there is nothing to forget
    with bound(cube="c", move="c@7"):
        forget("move", "segment")
        assert ids() == {"cube": "c"}


def test_tasks_of_a_loop_do_not_mix_their_ids() -> None:
    async def work(number: int) -> str:
        with bound(request=number):
            await asyncio.sleep(0)
            return await asyncio.to_thread(lambda: ids()["request"])

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(work(number) for number in range(30)))

    assert asyncio.run(all_of_them()) == [str(number) for number in range(30)]


def logged(log_format: LogFormat, message: str, *, error: bool = False) -> str:
    """The line that a service writes."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    log = logging.Logger("rtolap.test")
    log.addHandler(handler)
    if error:
        try:
            raise ValueError("no\nspace")
        except ValueError:
            log.exception(message)
    else:
        log.warning(message)
    return written.getvalue()


@pytest.fixture
def working() -> Iterator[None]:
    with bound(load="hits-7", transaction=41):
        yield


@pytest.mark.usefixtures("working")
def test_a_line_has_the_ids_behind_its_message_or_as_fields() -> None:
    assert logged("text", "published").endswith(
        "WARNING rtolap.test: published [load=hits-7 transaction=41]\n"
    )
    line = json.loads(logged("json", "published\nevil"))
    assert (line["load"], line["transaction"], line["message"]) == ("hits-7", "41", "published\nevil")
    failed = json.loads(logged("json", "failed", error=True))
    assert "ValueError: no\nspace" in failed["error"]


def test_an_id_takes_the_place_of_no_field_of_a_line() -> None:
    with bound(message="m", level="l", cube="c"):
        line = json.loads(logged("json", "hello"))
    assert (line["message"], line["level"], line["cube"]) == ("hello", "WARNING", "c")


def test_a_line_without_a_request_says_nothing_of_ids() -> None:
    assert logged("text", "started").endswith("rtolap.test: started\n")


def test_no_two_requests_have_one_id_whatever_thread_or_process_makes_it() -> None:
    def made(to: Connection | None = None) -> list[str]:
        found = [new_id() for _ in range(500)]
        if to is not None:
            to.send(found)
        return found

    context = multiprocessing.get_context(
        "fork"
    )  # as workers of statements begin: with all that is in memory
    children = []
    for _ in range(4):
        here, there = context.Pipe(duplex=False)
        child = context.Process(target=made, args=(there,))
        child.start()
        children.append((child, here))
    with ThreadPoolExecutor(8) as pool:
        of_threads = [pool.submit(made) for _ in range(8)]
    drawn = made()
    for future in of_threads:
        drawn += future.result()
    for child, here in children:
        drawn += here.recv()
        child.join()
    assert len(set(drawn)) == len(drawn) == 13 * 500
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in drawn)
