"""Version 1 of the REST interface: what it promises is served, and the page tells all of it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.support.pages.public_api import VERSION_1, broken, documented, served


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return served()


@pytest.fixture
def promised() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(VERSION_1.read_text())
    return found


def test_the_page_tells_every_request_once(now: dict[str, Any]) -> None:
    assert documented() == {service: sorted(requests) for service, requests in now["requests"].items()}


def test_nothing_of_version_1_is_gone_or_changed(promised: dict[str, Any], now: dict[str, Any]) -> None:
    assert len(promised["messages"]) > 30
    assert broken(promised, now) == []


def test_what_was_added_is_promised_from_now_on(promised: dict[str, Any], now: dict[str, Any]) -> None:
    """`python -m tests.support.pages.public_api` adds it."""
    assert broken(now, promised) == []


def test_a_lost_request_a_changed_field_and_a_further_need_are_told(promised: dict[str, Any]) -> None:
    other = copy.deepcopy(promised)
    other["requests"]["query"].remove("POST /api/v1/query")
    name, message = next(
        (name, message) for name, message in other["messages"].items() if len(message["fields"]) > 2
    )
    first, second, third, *_ = message["fields"]
    del message["fields"][first]
    message["fields"][second] = "another"
    message["needed"] = [third]
    promised["messages"][name]["needed"] = []
    assert broken(promised, other) == [
        "query no longer serves POST /api/v1/query",
        f"{name}.{first} was {promised['messages'][name]['fields'][first]}, and is gone",
        f"{name}.{second} was {promised['messages'][name]['fields'][second]}, and is another",
        f"{name}.{third} is needed now",
    ]
