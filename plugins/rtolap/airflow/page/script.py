"""The script that draws the page. `make setup` builds it out of `ui/`; without it there is no page."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

PAGE_NAME = "rtolap"  # the global that the script sets, by which Airflow finds the component
SCRIPT_PATH = Path(__file__).with_name("static") / "page.js"
SCRIPT_ROUTE = "script"


def react_apps(url_prefix: str, script: Path = SCRIPT_PATH) -> list[dict[str, Any]]:
    """Return what `AirflowPlugin.react_apps` expects: one page, or none where the script was not built.

    The address changes with the script, so that no browser draws the page with an older one.
    """
    if not script.is_file():
        return []
    return [
        {
            "name": PAGE_NAME,
            "url_route": PAGE_NAME,
            "bundle_url": f"{url_prefix}/page/{SCRIPT_ROUTE}/{_version(script)}.js",
            "destination": "nav",
        }
    ]


@cache
def _version(script: Path) -> str:
    return hashlib.sha256(script.read_bytes()).hexdigest()[:12]
