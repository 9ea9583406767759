"""Tests of what the HTTP endpoints of all services answer to whom. Airflow: `airflow/test_plugin.py`."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

import pytest

from tests.support.http_apps import PASSWORD, USERS, HttpApp, http_apps
from tests.support.pages.texts import text_of

EVERYBODY = ("nobody", "a user", "a loader", "a definer", "the token")
KNOWN, WITH_PASSWORD = EVERYBODY[1:], EVERYBODY[1:4]
LOADING, TOKEN = ("a loader", "a definer"), ("the token",)


class Operation(NamedTuple):
    """Of all pages that fit, those that an earlier operation has are left out. `pages`: method and path."""

    what: str
    service: str
    pages: tuple[str, ...]
    roles: tuple[str, ...]


OPERATIONS = (
    Operation("whether it is well", "*", ("GET /health",), EVERYBODY),
    Operation("what the server is", "stream-load", ("GET /",), EVERYBODY),
    Operation(
        "rejected rows, for who knows the name", "stream-load", ("GET /api/_load_error_log",), EVERYBODY
    ),
    Operation("metrics", "query", ("GET /metrics",), KNOWN),
    Operation("metrics", "stream-load", ("GET /metrics",), KNOWN),
    Operation("ask SQL", "query", ("POST /api/v1/query",), KNOWN),
    Operation("copies of history", "query", ("GET /api/v1/history-cache",), KNOWN),
    Operation("tables, nodes and transactions of the cluster", "stream-load", ("* /api/v1/*",), TOKEN),
    Operation(
        "columns, states of labels, who is there", "stream-load", ("GET /api/*", "GET /rest/*"), WITH_PASSWORD
    ),
    Operation("load, end transactions, acknowledge labels", "stream-load", ("PUT /api/*",), LOADING),
    Operation("everything", "coordinator", ("*",), TOKEN),
    Operation("start, stop and look at processes", "agent", ("*",), TOKEN),
    Operation("pause, resume and stop the loader", "loader", ("*",), TOKEN),
)


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, HttpApp]]:
    with http_apps(tmp_path_factory.mktemp("apps")) as found:
        yield found


def operation(service: str, page: str) -> Operation:
    return next(
        each
        for each in OPERATIONS
        if each.service in ("*", service) and any(fnmatchcase(page, pattern) for pattern in each.pages)
    )


@pytest.mark.parametrize("role", EVERYBODY)
def test_each_role_may_do_what_the_table_says(apps: dict[str, HttpApp], role: str) -> None:
    wrong, asked = [], 0
    for service, app in apps.items():
        headers = {"Authorization": f"Bearer {app.token}"} if role == "the token" else {}
        auth = (USERS[KNOWN.index(role)], PASSWORD) if role in WITH_PASSWORD else None
        for page, status in app.asked(headers, auth):
            asked += 1
            allowed, wanted = status not in (401, 403), role in operation(service, page).roles
            if allowed is not wanted:
                wrong.append(f"{service} {page}: {status}")
    assert asked > 70
    assert not wrong, "\n".join(wrong)


def test_every_operation_is_one_of_some_page(apps: dict[str, HttpApp]) -> None:
    met = {operation(service, page) for service, app in apps.items() for page in app.pages()}
    assert met == set(OPERATIONS)


def test_the_page_on_security_has_this_table() -> None:
    lines = ["| page | server | " + " | ".join(EVERYBODY) + " |", "|---" * (2 + len(EVERYBODY)) + "|"]
    for each in OPERATIONS:
        service = "all" if each.service == "*" else each.service
        may = " | ".join("yes" if role in each.roles else "" for role in EVERYBODY)
        lines.append(f"| {each.what} | {service} | {may} |")
    assert "\n".join(lines) in text_of("security"), "the table is:\n" + "\n".join(lines)
