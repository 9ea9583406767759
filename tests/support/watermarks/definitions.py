"""Parts of applications as tests declare them at a coordinator."""

from __future__ import annotations

from typing import Any

LEASE_MS = 3_600_000  # of a registered host: longer than a test


def hosts_source(name: str, *, lease_ms: int = LEASE_MS, **more: object) -> dict[str, Any]:
    """Return a source whose hosts register; none of them may be late."""
    rule = {"host_precise": {"delayed_hosts_ppm": 0}}
    return {"name": name, "rule": rule, "hosts": {"registry": {"lease_ms": lease_ms}}, **more}
