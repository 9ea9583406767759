"""An application, which is a stream topology whose levels have watermarks.

A **level** is a source, an operator or a sink; **edges** join them without a cycle. A **unit** of a level is
one (processor, key group). A level has two watermarks:

    input(level)  = the smallest output of its upstreams;  input(source) = what its rule makes of its hosts
    output(level) = the smaller of input and the oldest work of its units

A source that reads what another application produced lists the producers as its hosts, with a rule of
`host_precise` and 0 ppm: what they state per partition is combined by minimum.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from rtolap.base.errors import Refused

LevelRole = Literal["source", "operator", "sink"]
RuleKind = Literal["partitions", "host_precise", "deficit"]
HostListKind = Literal["file", "url", "zookeeper", "registry"]


class Partitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The smallest of the partitions' largest event times; no host list needed."""


class HostPrecise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All hosts but a share of them have logged everything before the watermark."""

    delayed_hosts_ppm: int


class Deficit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The largest share of events that may be missing of a window of `window_ms` ending at the watermark."""

    missing_events_ppm: int
    window_ms: int


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rule of a source. Exactly one is set."""

    partitions: Partitions | None = None
    host_precise: HostPrecise | None = None
    deficit: Deficit | None = None

    @property
    def kind(self) -> RuleKind:
        return "host_precise" if self.host_precise else "deficit" if self.deficit else "partitions"

    @property
    def needs_hosts(self) -> bool:
        return self.kind != "partitions"


class Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Hosts register themselves over REST; one that does not renew within the lease has left."""

    lease_ms: int = 60_000


class HostList(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The source of the names of a source's hosts. Exactly one of the first four is set.

    Attributes:
        file: a file with a name a line.
        url: an address that returns a name a line.
        zookeeper: a node whose children are the names.
        registry: hosts register themselves.
        refresh_ms: interval at which a file, address or node is read again.
        grace_ms: time for which a host still counts once it is no longer listed there.
    """

    file: str | None = None
    url: str | None = None
    zookeeper: str | None = None
    registry: Registry | None = None
    refresh_ms: int = 30_000
    grace_ms: int = 60_000

    @property
    def kind(self) -> HostListKind:
        if self.registry is not None:
            return "registry"
        return "file" if self.file is not None else "url" if self.url is not None else "zookeeper"


class ApplicationSource(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """A source of an application, by which events come in.

    Attributes:
        heartbeat_ms: interval at which an idle host sends a heartbeat, on the way of its events.
        future_max_ms: progress further ahead of the server's clock is refused.
        unit_lease_ms: a unit that is silent for longer has left.
    """

    name: str
    rule: Rule = Rule(partitions=Partitions())
    hosts: HostList | None = None
    heartbeat_ms: int = 5_000
    future_max_ms: int = 60_000
    unit_lease_ms: int = 30_000


class Operator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    unit_lease_ms: int = 30_000


class Sink(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A sink of an application, in which windows close, and to which the global low watermark is returned."""

    name: str
    unit_lease_ms: int = 30_000


class CubeWatermark(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A cube whose segments close by an application: its receivers report as that source and that sink."""

    application: str
    source: str
    sink: str


class Application(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Sources, operators and sinks, and how events flow between them.

    Attributes:
        edges: pairs (upstream, downstream) of level names.
    """

    name: str
    sources: tuple[ApplicationSource, ...]
    operators: tuple[Operator, ...] = ()
    sinks: tuple[Sink, ...]
    edges: tuple[tuple[str, ...], ...]

    @property
    def levels(self) -> tuple[ApplicationSource | Operator | Sink, ...]:
        return (*self.sources, *self.operators, *self.sinks)

    def source(self, name: str) -> ApplicationSource | None:
        return next((source for source in self.sources if source.name == name), None)

    def role(self, level: str) -> LevelRole:
        if self.source(level) is not None:
            return "source"
        return "sink" if any(sink.name == level for sink in self.sinks) else "operator"

    def upstreams(self, level: str) -> tuple[str, ...]:
        return tuple(edge[0] for edge in self.edges if edge[1] == level)

    def in_order(self) -> tuple[str, ...]:
        """Return names of the levels, each after all its upstreams; those on a cycle are left out."""
        waiting = {level.name: set(self.upstreams(level.name)) for level in self.levels}
        ordered: list[str] = []
        while ready := [name for name, upstreams in waiting.items() if upstreams <= set(ordered)]:
            ordered += ready
            for name in ready:
                del waiting[name]
        return tuple(ordered)


def refuse_unsafe_change(before: Application, after: Application) -> None:
    """Raise Refused for the first change that would give a published watermark another meaning."""
    for level in after.levels:
        former = next((one for one in before.levels if one.name == level.name), None)
        if former is None:
            continue
        if type(former) is not type(level):
            raise Refused(
                f"application {before.name}: level {level.name} cannot change its kind",
                expected=before.role(level.name),
                found=after.role(level.name),
                action="give the new level another name",
            )
        if isinstance(former, ApplicationSource) and isinstance(level, ApplicationSource):
            _refuse_other_progress(before.name, former, level)


def _refuse_other_progress(application: str, before: ApplicationSource, after: ApplicationSource) -> None:
    """Raise Refused for a change between hosts and none: reporters of a source without hosts name none, those
    of one with hosts name all.
    """
    if before.rule.needs_hosts != after.rule.needs_hosts:
        raise Refused(
            f"application {application}: source {after.name} cannot change between partitions and hosts",
            expected=f"a rule {'with' if before.rule.needs_hosts else 'without'} hosts, such as "
            f"{before.rule.kind}",
            found=after.rule.kind,
            action="declare a source of another name beside it, move its consumers, then remove this one",
        )
