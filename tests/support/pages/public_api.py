"""The public requests of the services: those that are served, those of docs/api.md, and those of version 1.

    python -m tests.support.pages.public_api     accept what is served now as version 1: only to add to it

`VERSION_1` has, for each service, its requests, and for the coordinator also the fields of its messages, and
which of them a request needs.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from tests.support.http_apps import http_apps
from tests.support.paths import PROJECT

PAGE = PROJECT / "docs" / "api.md"
VERSION_1 = PROJECT / "tests" / "packaging" / "public_api_v1.json"
SECTIONS = {
    "Coordinator": "coordinator",
    "Query service": "query",
    "Front end of stored tables": "stream-load",
    "Loader": "loader",
    "Agent": "agent",
}
_ROW = re.compile(r"^\| `([A-Z]+ /\S*)` \|", re.MULTILINE)
_REFERENCE = re.compile(r"#/components/schemas/(\w+)")
_INTERNAL = re.compile(r"`([A-Z]+ /[^`]*)`")
# Other spellings of a request that the page names in its row.
_SPELLINGS = {
    "PUT /api/{db}/{table}/_stream_load/": "PUT /api/{db}/{table}/_stream_load",
    "PUT /api/{db}/_stream_load_2pc": "PUT /api/{db}/{table}/_stream_load_2pc",
    "GET /": "GET /health",
    "GET /api/health": "GET /health",
}


def served() -> dict[str, Any]:
    """Return what the services serve, in the form of `VERSION_1`."""
    with tempfile.TemporaryDirectory() as folder, http_apps(Path(folder)) as apps:
        requests = {
            service: sorted({_SPELLINGS.get(page, page) for page in app.pages()})
            for service, app in apps.items()
        }
        document = apps["coordinator"].app.openapi()
    schemas, sent = document["components"]["schemas"], _sent(document)
    messages = {
        name: {
            "fields": {field: _type(of) for field, of in sorted(schema.get("properties", {}).items())},
            "needed": sorted(schema.get("required", ())) if name in sent else [],
        }
        for name, schema in sorted(schemas.items())
    }
    return {"requests": requests, "messages": messages}


def _sent(document: dict[str, Any]) -> set[str]:
    """Return the names of the messages that bodies of requests are made of."""
    schemas = document["components"]["schemas"]
    bodies = [
        request.get("requestBody", {}) for path in document["paths"].values() for request in path.values()
    ]
    found: set[str] = set()
    new = set(_REFERENCE.findall(json.dumps(bodies)))
    while new:
        found |= new
        new = {name for one in new for name in _REFERENCE.findall(json.dumps(schemas[one]))} - found
    return found


def _type(schema: dict[str, Any]) -> str:
    """Return what a field may be, such as `integer|null`; of lists and objects only that."""
    several = schema.get("anyOf")
    if several:
        return "|".join(sorted(_type(one) for one in several))
    reference = str(schema.get("$ref", ""))
    return reference.rpartition("/")[2] or str(schema.get("type", "any"))


def documented() -> dict[str, list[str]]:
    """Return the requests of the page by service, those between services among them."""
    head, *sections = PAGE.read_text().split("\n## ")
    assert head
    found: dict[str, list[str]] = {}
    internal: list[str] = []
    for section in sections:
        title = section.partition("\n")[0].partition(",")[0]
        if title in SECTIONS:
            found[SECTIONS[title]] = _ROW.findall(section)
        elif title == "Between services":
            internal = [each for text in _INTERNAL.findall(section) for each in _spelled_out(text)]
    owners = {"/api/v1/receivers": "coordinator", "/api/v1/read-views": "stream-load"}
    for request in internal:
        path = request.partition(" ")[2]
        owner = next((owners[start] for start in owners if path.startswith(start)), "stream-load")
        found[owner].append(request)
    return {service: sorted(requests) for service, requests in found.items()}


def _spelled_out(text: str) -> list[str]:
    """Return each of `POST /a/b|c`."""
    start, _, ends = text.rpartition("/")
    return [f"{start}/{end}" for end in ends.split("|")]


def broken(promised: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what of a promise does not hold any more, in words: nothing where there are only additions."""
    lacks = [
        f"{service} no longer serves {request}"
        for service, requests in promised["requests"].items()
        for request in requests
        if request not in now["requests"].get(service, ())
    ]
    for name, message in promised["messages"].items():
        other = now["messages"].get(name)
        if other is None:
            lacks.append(f"there is no message {name} any more")
            continue
        lacks += [
            f"{name}.{field} was {of}, and is {other['fields'].get(field, 'gone')}"
            for field, of in message["fields"].items()
            if other["fields"].get(field) != of
        ]
        lacks += [
            f"{name}.{field} is needed now" for field in other["needed"] if field not in message["needed"]
        ]
    return lacks


if __name__ == "__main__":
    VERSION_1.write_text(json.dumps(served(), indent=1) + "\n")
