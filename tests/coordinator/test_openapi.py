"""`/openapi.json` says what the coordinator answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, TOKEN, Cluster

OPEN = "/health"
WINDOW = "19700101010000_19700101020000"
# One that exists for every path parameter of the routes that read cubes, segments and receivers.
KNOWN = {"cube": NAME, "segment": WINDOW}
NAMES = {"tables": "clicks", "lookups": "pages", "cubes": NAME, "replica-sets": "rs1"}


@pytest.fixture
def document(cluster: Cluster) -> dict[str, Any]:
    cluster.enabled()
    cluster.closed(1)
    lookup = {"name": "pages", "file": "pages.csv", "columns": [{"name": "page", "type": "string"}]}
    cluster.client.create_lookup(lookup)
    found: dict[str, Any] = cluster.http.get("/openapi.json").json()
    return found


def check(document: dict[str, Any], path: str, method: str, answer: httpx.Response) -> None:
    said = document["paths"][path][method]["responses"]
    assert str(answer.status_code) in said, (method, path, answer.status_code)
    schema = said[str(answer.status_code)]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": document["components"]}).validate(answer.json())


def concrete(path: str) -> str:
    collection = path.split("/")[3] if path.startswith("/api/v1/") else ""
    return re.sub(
        r"\{(\w+)\}",
        lambda found: NAMES.get(collection, "") if found[1] == "name" else KNOWN.get(found[1], "nobody"),
        path,
    )


def test_every_page_that_is_read_is_as_described(cluster: Cluster, document: dict[str, Any]) -> None:
    """Those of a watermark application, which is not there, answer as described too: 404."""
    cluster.client.promote(NAME, WINDOW, cluster.build(WINDOW))
    read = 0
    for path, methods in document["paths"].items():
        if "get" in methods:
            answer = cluster.http.get(concrete(path))
            assert answer.status_code == 200 or "nobody" in concrete(path), (path, answer.text)
            check(document, path, "get", answer)
            read += answer.status_code == 200
    assert read >= 15


def test_what_changes_something_answers_as_described(cluster: Cluster, document: dict[str, Any]) -> None:
    cube, segment = "/api/v1/cubes/{cube}", "/api/v1/cubes/{cube}/segments/{segment}"
    for path, body in (
        (f"{cube}/pause", None),
        (f"{cube}/resume", None),
        (f"{cube}/enable", {"assigner": "default"}),
        (f"{cube}/retention", None),
        (f"{cube}/cleanup", None),
        (f"{segment}/builds", None),
        (f"{segment}/close", None),
        (f"{cube}/purge", {"before_ms": HOUR_MS}),
    ):
        answer = cluster.http.post(concrete(path), json=body)
        assert answer.status_code == 200, (path, answer.text)
        check(document, path, "post", answer)


def test_errors_are_of_one_form_and_described(cluster: Cluster, document: dict[str, Any]) -> None:
    cube = "/api/v1/cubes/{cube}"
    for path, method, body, status in (
        (f"{cube}/purge", "post", {"before_ms": "never"}, 422),
        (f"{cube}/purge", "post", None, 422),
        (cube, "delete", None, 409),
    ):
        answer = cluster.http.request(method, concrete(path), json=body)
        assert answer.status_code == status
        assert set(answer.json()) == {"code", "message"}
        check(document, path, method, answer)
    check(document, cube, "get", cluster.http.get("/api/v1/cubes/nothing"))
    check(document, cube, "get", cluster.http.get(concrete(cube), headers={"Authorization": "Bearer x"}))
    cluster.store.disconnect()
    answer = cluster.http.get(concrete(cube))
    assert answer.status_code == 503
    check(document, cube, "get", answer)
    cluster.store.reconnect()
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_it_says_that_all_but_health_want_the_token(document: dict[str, Any]) -> None:
    (scheme,) = document["components"]["securitySchemes"].items()
    assert (scheme[1]["type"], scheme[1]["scheme"]) == ("http", "bearer")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            wanted = None if path == OPEN else [{scheme[0]: []}]
            assert operation.get("security") == wanted, (method, path)
            assert TOKEN not in str(operation)


def test_the_architecture_names_the_routes_of_cubes_and_segments(document: dict[str, Any]) -> None:
    """The page is written by hand: each of its words is a route, and no route is missing there."""
    said = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    section = said.partition("## Coordinator REST")[2]
    for path in document["paths"]:
        last = path.rstrip("/").rpartition("/")[2] if not path.endswith("}") else path.split("/")[-2]
        if "/applications" not in path:
            assert re.search(rf"\b{re.escape(last)}\b", section), path
