"""The whole way, in small: logs, readers, reports, lists, rules, levels.

An observer who knows every event checks that what is published never falls, and that a rise never passes more
late hosts, or events, than the rule allows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from rtolap.model.application import Application, ApplicationSource, Sink
from rtolap.watermark.hostlist import Hosts
from rtolap.watermark.progress import SourceProgress
from rtolap.watermark.rules import Deficit, HostPrecise, Rule
from rtolap.watermark.snapshot import NEVER, SourceSnapshot
from rtolap.watermark.topology import Marks, combine

from tests.support.seeds import so_many

APPLICATION = Application(
    name="a", sources=(ApplicationSource(name="s"),), sinks=(Sink("k"),), edges=(("s", "k"),)
)
WINDOW_MS = 50
PARTITIONS = 2
STORIES = so_many(120, 200)  # for each rule and seed
Report = tuple[int, int, dict[str, int]]


@dataclass
class World:
    """Every host logs to one partition; a reader per partition may be replaced and begin again earlier."""

    rng: random.Random
    now_ms: int = 1_000
    logged: dict[str, list[int]] = field(default_factory=dict)
    log: list[list[tuple[str, int]]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    position: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    generation: list[int] = field(default_factory=lambda: [1] * PARTITIONS)
    sent: list[Report] = field(default_factory=list)

    def write(self, listed: list[str]) -> None:
        self.now_ms += self.rng.randint(1, 10)
        for host in listed:
            if self.rng.random() < 0.7:  # an event or a heartbeat; who is stalled says nothing
                self.log[int(host[1:]) % PARTITIONS].append((host, self.now_ms))

    def read(self) -> list[Report]:
        """New reports, with old ones again and out of order."""
        fresh: list[Report] = []
        for partition in range(PARTITIONS):
            if self.rng.random() < 0.1:
                self.generation[partition] += 1
                self.position[partition] = self.rng.randint(0, self.position[partition])
            here = self.log[partition]
            end = self.rng.randint(self.position[partition], len(here))
            latest = dict(here[self.position[partition] : end])
            self.position[partition] = end
            fresh.append((partition, self.generation[partition], latest))
        self.sent += fresh
        fresh += self.rng.choices(self.sent, k=self.rng.randint(0, 2))
        self.rng.shuffle(fresh)
        return fresh

    def unread(self, host: str) -> list[int]:
        partition = int(host[1:]) % PARTITIONS
        return [at for one, at in self.log[partition][self.position[partition] :] if one == host]


def state_history(rng: random.Random, rule: Rule) -> None:
    world, hosts, progress = World(rng), Hosts(), SourceProgress(0)
    names = [f"h{at}" for at in range(rng.randint(1, 6))]
    listed = list(names)
    hosts.replace(listed, world.now_ms, 20)
    marks = Marks({})
    for _ in range(12):
        if rng.random() < 0.2:
            listed = rng.sample(names, rng.randint(1, len(names)))
            hosts.replace(listed, world.now_ms, 20)
        world.write(listed)
        for partition, generation, latest in world.read():
            progress.grow(len(hosts))
            known = hosts.indices(list(latest))
            progress.apply(
                partition, generation, known, np.array(list(latest.values()), np.int64), world.now_ms
            )
        progress.grow(len(hosts))
        hosts.leave(progress.latest_ms(), world.now_ms)
        n = len(hosts)
        one = SourceSnapshot(
            world.now_ms,
            hosts.names,
            progress.latest_ms(),
            np.full(n, 1000.0),
            np.zeros(n),
            hosts.listed,
            hosts.drained,
        )
        decision = rule.decide(one)
        before = marks
        marks = combine(APPLICATION, {"s": decision.watermark_ms}, {}, before, world.now_ms)
        assert (marks.global_ms or NEVER) >= (before.global_ms or NEVER)
        if marks.global_ms is None or marks.global_ms == before.global_ms:
            continue
        mark = marks.global_ms
        counting = [name for name, counts in zip(hosts.names, one.counting, strict=True) if counts]
        late = {name: [at for at in world.unread(name) if at < mark] for name in counting}
        if isinstance(rule, HostPrecise):
            assert (
                sum(bool(events) for events in late.values())
                <= rule.delayed_hosts_ppm * len(counting) // 1_000_000
            )
        elif isinstance(rule, Deficit):
            # What a late host may owe reaches from its first unread event to the mark.
            owed = sum(min(mark - min(events), WINDOW_MS) for events in late.values() if events)
            assert owed <= rule.missing_events_ppm / 1e6 * WINDOW_MS * len(counting) + 1e-6


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "rule", [HostPrecise(0), HostPrecise(300_000), Deficit(0, WINDOW_MS), Deficit(200_000, WINDOW_MS)]
)
def test_what_is_published_never_falls_and_is_never_early(rule: Rule, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(STORIES):
        state_history(rng, rule)
