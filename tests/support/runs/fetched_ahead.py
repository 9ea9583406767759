"""The jars of servers that some tests alone need, fetched beside the tests that come before these.

    python -m tests.support.runs.fetched_ahead

A new machine fetches some hundred files, one after the other for each server: minutes in which a test waits
and the processors are idle. What cannot be fetched here is fetched again by its test, which says why not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rtolap.base.errors import RtolapError
from rtolap.stack.artifacts import hbase_jars

from tests.support.cubes.object_servers import object_server_jars
from tests.support.fleet.jmx_agents import jolokia_agent, prometheus_exporter
from tests.support.fleet.kafka_tools import kafka_tools
from tests.support.fleet.tiered_brokers import tiered_storage_jar
from tests.support.formats.apicurio import registry_archive

# The first ones are needed first, and the largest begin first.
FETCHED: tuple[Callable[[], object], ...] = (
    jolokia_agent,
    kafka_tools,
    hbase_jars,
    lambda: object_server_jars("s3a"),
    tiered_storage_jar,
    prometheus_exporter,
    registry_archive,
)


def main() -> int:
    with ThreadPoolExecutor(len(FETCHED)) as pool:
        errors = [future.exception() for future in [pool.submit(fetch) for fetch in FETCHED]]
    for error in errors:
        if isinstance(error, RtolapError):
            print(f"fetched_ahead: {error}", file=sys.stderr)
        elif error is not None:
            raise error
    return 1 if any(errors) else 0


if __name__ == "__main__":
    sys.exit(main())
