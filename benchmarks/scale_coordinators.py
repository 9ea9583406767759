"""A part of `benchmarks.scale`: applications that several coordinators share, over stores in memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from rtolap.coordinator.applications.owned import LiveCoordinators, chosen_owner
from rtolap.coordinator.applications.registry import Applications
from rtolap.coordinator.leadership import FencedStore
from rtolap.metadata import paths
from rtolap.metadata.cached import CachedStore
from rtolap.model.application import (
    Application,
    ApplicationSource,
    HostList,
    HostPrecise,
    Registry,
    Rule,
    Sink,
)
from rtolap.protocols.watermark.messages import HostsChange
from rtolap.watermark_client.pending import Pending

from benchmarks.scale_figures import HOUR_MS, START_MS, CountingStore, Figure
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore


def spread_figures(counts: Sequence[int], applications: int, hosts: int) -> list[Figure]:
    """Return figures of a tick of every coordinator, by the number of coordinators that share the
    applications. Each application has so many hosts, all of which have reported."""
    figures: list[Figure] = []
    for count in counts:
        ensemble, clock = MemoryEnsemble(), ManualClock(START_MS)
        sharing = [SharingCoordinator(ensemble, clock, number) for number in range(count)]
        assert ensemble.settle(), "all know who lives"
        names = [f"app{number}" for number in range(applications)]
        for name in names:
            sharing[0].applications.create(application_of(name))
        for one in sharing:
            one.applications.tick()
        urls = [one.url for one in sharing]
        for name in names:
            sharing[urls.index(chosen_owner(name, urls))].report(name, hosts)
        clock.advance_ms(1000)
        spent = [one.measured() for one in sharing]
        owned = [one.applications.own.count() for one in sharing]
        assert sum(owned) == applications, f"each is run once: {owned}"
        figures.append(
            Figure(
                f"tick of the busiest of {count} coordinators",
                max(figure.seconds or 0.0 for figure in spent),
                max(figure.requests or 0 for figure in spent),
                max(figure.bytes or 0 for figure in spent),
                f"{max(owned)} of {applications} applications; all: "
                f"{sum(figure.seconds or 0.0 for figure in spent):.3f} s, "
                f"{sum(figure.requests or 0 for figure in spent)} requests",
            )
        )
        for one in sharing:
            one.close()
    return figures


class SharingCoordinator:
    """A coordinator that shares applications, over a session of its own in the ensemble."""

    def __init__(self, ensemble: MemoryEnsemble, clock: ManualClock, number: int) -> None:
        self.url = f"http://c{number}"
        self._clock = clock
        self.store = CountingStore(MemoryStore(ensemble))
        self._election = self.store.elect(paths.ELECTION, self.url, lambda: None)
        owned = FencedStore(self.store, self._election.node)
        self._looked_at = CachedStore(owned)
        live = LiveCoordinators(self._looked_at, self.url)
        self.applications = Applications(
            owned, clock, self._election.node, live=live, looked_at=self._looked_at
        )

    def report(self, name: str, hosts: int) -> None:
        """Register the hosts of an application, and report that each was read to the present."""
        running = self.applications.running(name)
        hosts_of = [f"h{number}" for number in range(hosts)]
        running.change_hosts(HostsChange(level="web", action="register", hosts=tuple(hosts_of)))
        read_ms = np.full(hosts, self._clock.now_ms(), np.int64)
        epoch = 0
        for sequence in (1, 2):  # the first one is told the epoch
            pending = Pending()
            pending.progress("web", 0, 0, hosts_of, read_ms, np.ones(hosts, np.int64), 1)
            pending.begin()
            epoch = running.report(pending.take_report(f"{name}-0", sequence, epoch, True)).epoch

    def measured(self) -> Figure:
        requests, read = self.store.requests, self.store.read_bytes
        began_s = time.process_time()
        self.applications.tick()
        spent_s = time.process_time() - began_s
        sent, got = self.store.requests - requests, self.store.read_bytes - read
        return Figure("tick", round(spent_s, 4), sent, got)

    def close(self) -> None:
        self.applications.close()
        self._looked_at.close()
        self.store.close()


def application_of(name: str) -> dict[str, Any]:
    web = ApplicationSource(
        name="web", rule=Rule(host_precise=HostPrecise(0)), hosts=HostList(registry=Registry(24 * HOUR_MS))
    )
    declared = Application(name=name, sources=(web,), sinks=(Sink("store"),), edges=(("web", "store"),))
    plain: dict[str, Any] = msgspec.to_builtins(declared)
    return plain
