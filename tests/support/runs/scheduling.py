"""Which process runs which tests, and in which order.

A scope is run by one process. It is a folder of `integration/`, whose tests share servers, or all tests
that start a whole stack of their own: one such stack runs at a time, beside that of the tests of Airflow.
Elsewhere it is a file.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

WITHOUT_SERVERS = "without servers"
WHOLE_STACKS = "whole stacks"
_WHOLE_STACKS = ("demo", "e2e", "packaging", "stack", "tutorials")
_STARTS_NO_STACK = (
    "test_exact_under_faults.py"  # of e2e: it has the servers of its process and services of its own
)

# The longest scopes begin first and the shortest end the run: until then no process is without work. Tests
# without servers, a scope for each file, come early: where time is limited, what is sorted last is left out.
ORDER = (
    "airflow",
    "spark",
    WITHOUT_SERVERS,
    WHOLE_STACKS,
    "fleet",
    "coordinator",
    "query",
    "sep",
    "receiver",
    "frontend",
    "loader",
    _STARTS_NO_STACK,
    "security",
    "publish",
    "kafka",
    "watermark",
    "storage",
    "metadata",
    "metastore",
    "cli",
    "format",
)


def scope_of(nodeid: str) -> str:
    path = nodeid.split("::", maxsplit=1)[0]
    parts = path.split("/")
    if "integration" not in parts:
        return path
    if parts[-1] == _STARTS_NO_STACK:
        return _STARTS_NO_STACK
    folder = parts[parts.index("integration") + 1]
    return WHOLE_STACKS if folder in _WHOLE_STACKS else folder


def place_of(nodeid: str) -> str:
    """Return the name that the scope of a test has in ORDER."""
    scope = scope_of(nodeid)
    return WITHOUT_SERVERS if scope.endswith(".py") and scope != _STARTS_NO_STACK else scope


class ByServers(LoadScopeScheduling):  # type: ignore[misc]
    """Where several processes share the tests, those that share servers stay in one, in their order."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _reschedule(self, node: Any) -> None:
        """Give a process its next scope when its last test waits for that, not a test earlier, as xdist does.

        The test before the last may take minutes, in which another process may be free for the scope.
        """
        if self.workqueue and self._pending_of(self.assigned_work[node]) > 1:
            return
        super()._reschedule(node)
