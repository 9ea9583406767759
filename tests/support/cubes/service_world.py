"""A cube served by real processes on real servers, with a log of what was sent.

Queries name the prefix of every partition that they hold; `World.expected` is the plain recount of a prefix.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import httpx
import msgspec
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.model.cube import AggregationGroup, LatePolicy, Schema
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER, Column, Lookup

from tests.support.cubes.builders import START_MS, WINDOW_MS, Event, random_event, small_schema
from tests.support.cubes.recount import VALUES, Answer, counted, recount
from tests.support.cubes.services import Services, wait_for
from tests.support.query.asked_statements import LOOKUP, REGIONS, number
from tests.support.query.visitors import with_visitor, with_visitors

PARTITIONS = 4
STEP_MS = 400


class World:
    """A cube of `PARTITIONS` partitions on a topic of its own, served by `replica_sets`: name → receivers.

    `kafka` is how this test reaches the topic, `kafka_cluster` what its table calls that cluster.
    `visitors`: with distinct ones of them, and a lookup of places, as `asked_statements` asks for them.
    """

    def __init__(
        self,
        services: Services,
        kafka: KafkaCluster | str,
        name: str,
        seed: int,
        replica_sets: dict[str, tuple[str, ...]],
        *,
        visitors: bool = False,
        kafka_cluster: str = DEFAULT_KAFKA_CLUSTER,
    ) -> None:
        schema = with_visitors(small_schema(name=name)) if visitors else small_schema(name=name)
        self._visitors = visitors
        if visitors:
            services.environment["RTOLAP_INCLUDE_DIR"] = str(services.folder)
        table = msgspec.structs.replace(
            schema.table, name=f"{name}_table", topic=name, kafka_cluster=kafka_cluster
        )
        cube = msgspec.structs.replace(
            schema.cube,
            table=table.name,
            aggregation_groups=(AggregationGroup(("kind", "place")),),
            late=LatePolicy(merge_after_ms=3_000),
        )
        self.schema = Schema(table, cube)
        self.cube = name
        self.services = services
        self.replica_sets = replica_sets
        self.random = random.Random(seed)
        self.log: dict[int, list[Event | None]] = {p: [] for p in range(PARTITIONS)}
        self.clock_ms = START_MS
        self._producer = KafkaProducer(kafka, client_id="test")
        self.sql = f"SELECT kind, place, {VALUES} FROM {name} GROUP BY kind, place"

    def declare(self) -> None:
        client = self.services.coordinator
        if self._visitors:
            self._declare_places()
        client.create_table(msgspec.to_builtins(self.schema.table))
        client.create_cube(msgspec.to_builtins(self.schema.cube))
        self.wait_for_receivers()
        client.enable_cube(self.cube)

    def _declare_places(self) -> None:
        lines = ["place,region", *(f"{place},{region}" for place, region in REGIONS.items())]
        (self.services.folder / f"{LOOKUP}.csv").write_text("\n".join(lines))
        columns = (Column("place", "int"), Column("region", "string"))
        places = Lookup(name=LOOKUP, file=f"{LOOKUP}.csv", columns=columns)
        self.services.coordinator.create_lookup(msgspec.to_builtins(places))

    def start_receivers(self, replica_set: str) -> None:
        for name in self.replica_sets[replica_set]:
            self.services.start_receiver(
                name, replica_set, "--checkpoint-interval-s", "2", "--idle-after-s", "2"
            )

    def wait_for_receivers(self) -> None:
        """Wait until all that were started live."""
        started = {name for names in self.replica_sets.values() for name in names} & self.services.running()
        wait_for(
            "the receivers live",
            lambda: (
                {r.receiver_id for r in self.services.coordinator.receivers() if r.health != "DOWN"}
                >= started
            ),
        )

    def produce(self, count: int) -> None:
        for _ in range(count):
            self.clock_ms += STEP_MS
            value, event = random_event(self.random, self.clock_ms)
            if self._visitors and value is not None and event is not None:
                value, event = with_visitor(self.random, value, event)
            partition = self.random.randrange(PARTITIONS)
            self._producer.produce(self.cube, [OutRecord(value, partition=partition)])
            self.log[partition].append(event)
        self._producer.flush(60)

    def ask(self) -> tuple[dict[int, int], Answer]:
        body = self.services.sql(self.sql)
        positions = {int(p): offset for p, offset in body["positions"][self.cube].items()}
        return positions, {(row[0], row[1]): tuple(number(cell) for cell in row[2:]) for row in body["rows"]}

    def expected(self, positions: dict[int, int]) -> Answer:
        return counted(recount(self.prefix(positions)))

    def prefix(self, positions: Mapping[int, int]) -> Iterator[Event]:
        """Yield the events below these positions: partition → next offset."""
        return (e for p, es in self.log.items() for e in es[: positions.get(p, 0)] if e is not None)

    def assert_varied(self) -> None:
        """Assert that every partition has nulls, malformed records, late events and others out of order."""
        for events in self.log.values():
            sent = [event for event in events if event is not None]
            assert len(sent) < len(events), "a malformed record in each partition"
            assert any(one.amount is None for one in sent)
            assert any(one.kind is None for one in sent)
            times_ms = [one.event_ms for one in sent]
            assert times_ms != sorted(times_ms)
            newest = [max(times_ms[: n + 1]) for n in range(len(sent))]
            assert any(at < top - 2 * WINDOW_MS for at, top in zip(times_ms, newest, strict=True)), "late"

    def ends(self) -> dict[int, int]:
        return {p: len(events) for p, events in self.log.items()}

    def caught_up(self) -> bool:
        try:
            return self.ask()[0] == self.ends()
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        self._producer.close()
