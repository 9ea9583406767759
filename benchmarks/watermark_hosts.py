"""The completeness of windows when they close, over a fleet that stalls in part, on real servers.

    python -m benchmarks.watermark_hosts [--hosts 1000] [--events-per-s 20000] [--stalled 50] [--seed 5]

Kafka with 8 partitions, ZooKeeper, a coordinator and two receivers of one replica set as processes; windows
of ten seconds, closed by the deficit rule of `tests/integration/e2e/access_logs.yaml`. What happens is in
`tests/support/watermarks/host_stalls.py`. A line a window: events logged, events in the first version, what
was missing of them, the bound that was stated when it closed, and how long after its end that was. Nothing is
built.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

from rtolap.base.clock import SystemClock
from rtolap.kafka.producer import KafkaProducer

from benchmarks.servers import create_topic, kafka, zookeeper
from tests.support.cubes.services import Services, wait_for
from tests.support.watermarks.access_logs import AccessLogs, Window, write_host_list
from tests.support.watermarks.host_events import fleet
from tests.support.watermarks.host_stalls import Played, Stalls
from tests.support.watermarks.host_stream import HostStream

DEFINITIONS = Path(__file__).resolve().parents[1] / "tests/integration/e2e/access_logs.yaml"
TOPIC, PARTITIONS = "access_logs", 8
PPM = 1_000_000


class Line(NamedTuple):
    window: int
    stalled: str
    events: int
    first_version: int
    missing_ppm: float
    expected_ppm: int | None
    bound_ppm: int | None
    closing_delay_s: float


def measure(folder: Path, seed: int, hosts: int, events_per_s: float, stalled: int) -> list[Line]:
    with zookeeper() as nodes, kafka() as bootstrap:
        create_topic(bootstrap, TOPIC, PARTITIONS)
        services = Services(folder, zookeeper=nodes, root="/bench", kafka=bootstrap, coordinators=1)
        services.environment["RTOLAP_HOST_LIST_FOLDERS"] = str(folder)
        producer = KafkaProducer(bootstrap)
        try:
            services.start_coordinators()
            for name in ("r0", "r1"):
                services.start_receiver(name, "only")
            wait_for("two receivers", lambda: len(services.coordinator.receivers()) == 2)
            of = fleet(
                seed, hosts=hosts, partitions=PARTITIONS, events_per_s=events_per_s, quiet=stalled // 2
            )
            host_list = folder / "hosts.txt"
            write_host_list(host_list, of.names)
            logs = AccessLogs(
                DEFINITIONS,
                topic=TOPIC,
                host_list=host_list,
                coordinator=services.coordinator,
                ask=services.sql,
            )
            logs.define()
            clock = SystemClock()
            start_ms = -(-clock.now_ms() // logs.window_ms) * logs.window_ms
            stream = HostStream(of, producer, TOPIC, clock, start_ms=start_ms, window_ms=logs.window_ms)
            stream.start()
            played = Stalls(logs, stream, clock).play(stalled, few_times=2)
            return [line(logs, stream, played, window) for window in played.windows]
        finally:
            services.close()
            producer.close()


def line(logs: AccessLogs, stream: HostStream, played: Played, window: Window) -> Line:
    wait_for(f"upload of window {window.number}", lambda: _staged(logs, window) is not None)
    segment, closed_ms = logs.segment(window), logs.closed_ms(window)
    assert segment is not None
    assert closed_ms is not None
    events, first = stream.logged(window.number), _staged(logs, window)
    assert first is not None
    few = {host.window.number for host in played.few}
    stalled = "few" if window.number in few else "many" if window == played.many.window else ""
    known = segment.completeness
    return Line(
        window=window.number,
        stalled=stalled,
        events=events,
        first_version=first,
        missing_ppm=round((events - first) * PPM / events, 1),
        expected_ppm=None if known is None else known.expected_missing_ppm,
        bound_ppm=None if known is None else known.bound_ppm,
        closing_delay_s=(closed_ms - window.end_ms) / 1000,
    )


def _staged(logs: AccessLogs, window: Window) -> int | None:
    segment = logs.segment(window)
    return None if segment is None or segment.state != "REMOTE_PERSISTED" else segment.staged_events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--events-per-s", type=float, default=20_000.0)
    parser.add_argument("--stalled", type=int, default=50, help="a twentieth of the hosts by default")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(
            Path(folder), arguments.seed, arguments.hosts, arguments.events_per_s, arguments.stalled
        )
    names = Line._fields
    print("  ".join(f"{name:>15}" for name in names))
    for line in lines:
        print("  ".join(f"{'' if value is None else value:>15}" for value in line))
    if arguments.json:
        print(json.dumps({"benchmark": "watermark_hosts", "windows": [line._asdict() for line in lines]}))


if __name__ == "__main__":
    main()
