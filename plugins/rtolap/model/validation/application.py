"""The checks of an application: `application_problems` lists everything, `validate_application` raises it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from rtolap.model.application import Application, ApplicationSource, HostList, Operator, Sink
from rtolap.model.cube import Schema
from rtolap.model.durations import format_duration
from rtolap.model.problems import Key, Problem, raise_all, unknown_name
from rtolap.model.validation.names import name_problems

LEVELS_MAX = 256
SHARE_PPM_MAX = 100_000  # a tenth; more is a mistake: it says what may be missing, not what is there
_SECOND_MS, _DAY_MS = 1000, 86_400_000
_WINDOW_MAX_MS = 366 * _DAY_MS
_RULES = ("partitions", "host_precise", "deficit")
_HOST_LISTS = ("file", "url", "zookeeper", "registry")


def validate_application(application: Application) -> None:
    """Raise DefinitionError naming every problem."""
    raise_all(f"application {application.name}", application_problems(application))


def application_problems(application: Application) -> tuple[Problem, ...]:
    found = name_problems(application.name, ("name",))
    found += _level_problems(application)
    for position, source in enumerate(application.sources):
        found += _source_problems(source, ("sources", position))
    edges = _edge_problems(application)
    found += edges
    if not edges:  # else every level beside a wrong edge would complain too
        found += _shape_problems(application)
    return tuple(found)


def cube_watermark_problems(schema: Schema, applications: Mapping[str, Application]) -> list[Problem]:
    """Check that what a cube says of its watermark fits the applications that are declared."""
    mark = schema.cube.watermark
    if mark is None:
        return []
    found: list[Problem] = []
    application = applications.get(mark.application)
    if application is None:
        expected = "" if applications else "one of none: declare an application first"
        key: Key = ("watermark", "application")
        return [unknown_name(key, "no such application", mark.application, sorted(applications), expected)]
    for role, name, levels in (
        ("source", mark.source, [level.name for level in application.sources]),
        ("sink", mark.sink, [level.name for level in application.sinks]),
    ):
        if name not in levels:
            found.append(unknown_name(("watermark", role), f"no such {role}", name, levels))
    source = application.source(mark.source)
    names_hosts = schema.table.host_column is not None or schema.table.watermark_records is not None
    if source is not None and source.rule.needs_hosts and not names_hosts:
        expected = f"host_column in table {schema.table.name}"
        message = f"rule {source.rule.kind} needs the host of an event"
        found.append(Problem(("watermark", "source"), message, expected=expected, found="none"))
    return found


def _level_problems(application: Application) -> Iterator[Problem]:
    seen: set[str] = set()
    for role, levels in _roles(application):
        if not levels and role != "operators":
            yield Problem((role,), f"no {role}", expected="one or more", found="none")
        for position, level in enumerate(levels):
            key: Key = (role, position, "name")
            yield from name_problems(level.name, key)
            if level.name in seen:
                yield Problem(key, "level is declared twice", found=repr(level.name))
            seen.add(level.name)
            yield from _duration(level.unit_lease_ms, _SECOND_MS, _DAY_MS, (role, position, "unit_lease_ms"))
    if len(application.levels) > LEVELS_MAX:
        yield Problem(
            (), "too many levels", expected=f"at most {LEVELS_MAX}", found=str(len(application.levels))
        )


def _source_problems(source: ApplicationSource, key: Key) -> list[Problem]:
    found = _one_of(source.rule, _RULES, (*key, "rule"), "rule")
    found += _duration(source.heartbeat_ms, 1, _DAY_MS, (*key, "heartbeat_ms"))
    found += _duration(source.future_max_ms, 0, _DAY_MS, (*key, "future_max_ms"))
    precise, deficit = source.rule.host_precise, source.rule.deficit
    if precise is not None:
        at: Key = (*key, "rule", "host_precise", "delayed_hosts_ppm")
        found += _share(precise.delayed_hosts_ppm, at, "hosts that may be late")
    if deficit is not None:
        at = (*key, "rule", "deficit", "missing_events_ppm")
        found += _share(deficit.missing_events_ppm, at, "events that may be missing")
        found += _duration(
            deficit.window_ms, _SECOND_MS, _WINDOW_MAX_MS, (*key, "rule", "deficit", "window_ms")
        )
    if source.hosts is not None:
        found += _host_list_problems(source, source.hosts, (*key, "hosts"))
    elif source.rule.needs_hosts:
        expected = f"the key hosts with one of {', '.join(_HOST_LISTS)}"
        found.append(Problem(key, f"rule {source.rule.kind} needs hosts", expected=expected, found="none"))
    if source.hosts is not None and not source.rule.needs_hosts:
        hint = "take a rule of host_precise or deficit, or leave the hosts out"
        found.append(Problem((*key, "hosts"), "rule partitions asks for no hosts", hint=hint))
    return found


def _host_list_problems(source: ApplicationSource, hosts: HostList, key: Key) -> list[Problem]:
    found = _one_of(hosts, _HOST_LISTS, key, "host list")
    found += _duration(hosts.refresh_ms, _SECOND_MS, _DAY_MS, (*key, "refresh_ms"))
    found += _duration(hosts.grace_ms, 0, _DAY_MS, (*key, "grace_ms"))
    if hosts.file is not None and not hosts.file.strip():
        found.append(Problem((*key, "file"), "no file", expected="a path", found=repr(hosts.file)))
    if hosts.url is not None:
        found += _url_problems(hosts.url, (*key, "url"))
    node = hosts.zookeeper
    if node is not None and (not node.startswith("/") or node.endswith("/") or "//" in node):
        expected = "an absolute path such as /services/web"
        found.append(Problem((*key, "zookeeper"), "not a node", expected=expected, found=repr(node)))
    if hosts.registry is not None:
        at: Key = (*key, "registry", "lease_ms")
        lease_ms = hosts.registry.lease_ms
        found += _duration(lease_ms, _SECOND_MS, _DAY_MS, at)
        if _SECOND_MS <= lease_ms < 2 * source.heartbeat_ms:
            expected = f"at least twice the heartbeat, {format_duration(2 * source.heartbeat_ms)}"
            found.append(Problem(at, "lease too short", expected=expected, found=format_duration(lease_ms)))
    return found


def _url_problems(url: str, key: Key) -> list[Problem]:
    """Return the problems of an address, without repeating the address where it may hold a password."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return [Problem(key, "not an address", expected="http://… or https://…", found="something else")]
    if parts.username is not None or parts.password is not None:
        return [Problem(key, "credentials in an address", expected="an address without them")]
    return (
        [] if sound else [Problem(key, "not an address", expected="http://… or https://…", found=repr(url))]
    )


def _edge_problems(application: Application) -> list[Problem]:
    found: list[Problem] = []
    names = [level.name for level in application.levels]
    sources = {source.name for source in application.sources}
    sinks = {sink.name for sink in application.sinks}
    for position, edge in enumerate(application.edges):
        key: Key = ("edges", position)
        if len(edge) != 2:
            expected = "two levels: [upstream, downstream]"
            found.append(Problem(key, "not an edge", expected=expected, found=str(list(edge))))
            continue
        found += [unknown_name(key, "no such level", name, names) for name in edge if name not in names]
        if edge in application.edges[:position]:
            found.append(Problem(key, "edge is declared twice", found=_arrows(edge)))
        if edge[1] in sources:
            expected = "sources to have no upstream"
            found.append(Problem(key, "a source with an upstream", expected=expected, found=_arrows(edge)))
        if edge[0] in sinks:
            expected = "sinks to have no downstream"
            found.append(Problem(key, "a sink with a downstream", expected=expected, found=_arrows(edge)))
    cycle = None if found else _cycle(application)
    if cycle:
        at = application.edges.index((cycle[0], cycle[1]))
        found.append(Problem(("edges", at), "a cycle", expected="edges without one", found=_arrows(cycle)))
    return found


def _shape_problems(application: Application) -> Iterator[Problem]:
    upstream = {edge[1] for edge in application.edges}
    downstream = {edge[0] for edge in application.edges}
    for role, levels in _roles(application):
        for position, level in enumerate(levels):
            key: Key = (role, position, "name")
            if role != "sources" and level.name not in upstream:
                expected = f"an edge [upstream, {level.name}]"
                yield Problem(key, f"{role[:-1]} without an upstream", expected=expected, found="none")
            if role != "sinks" and level.name not in downstream:
                expected = f"an edge [{level.name}, downstream]"
                yield Problem(key, f"{role[:-1]} leads nowhere", expected=expected, found="none")


def _cycle(application: Application) -> tuple[str, ...]:
    """Return the names along one cycle, the first again at the end; empty if there is none."""
    ordered = set(application.in_order())
    rest = [level.name for level in application.levels if level.name not in ordered]
    if not rest:
        return ()
    way = [rest[0]]  # everything left has an upstream that is left: going up must come round
    while True:
        above = next(name for name in application.upstreams(way[-1]) if name not in ordered)
        if above in way:
            return tuple(reversed([*way[way.index(above) :], above]))
        way.append(above)


def _roles(application: Application) -> tuple[tuple[str, Sequence[ApplicationSource | Operator | Sink]], ...]:
    return (
        ("sources", application.sources),
        ("operators", application.operators),
        ("sinks", application.sinks),
    )


def _one_of(value: object, names: tuple[str, ...], key: Key, what: str) -> list[Problem]:
    given = [name for name in names if getattr(value, name) is not None]
    if len(given) == 1:
        return []
    expected = f"exactly one of {', '.join(names)}"
    return [Problem(key, f"not a {what}", expected=expected, found=", ".join(given) or "none")]


def _share(share_ppm: int, key: Key, what: str) -> list[Problem]:
    if 0 <= share_ppm <= SHARE_PPM_MAX:
        return []
    hint = f"parts per million of {what}: 1000 is 0.1 %"
    return [Problem(key, "out of bounds", expected=f"0 to {SHARE_PPM_MAX}", found=str(share_ppm), hint=hint)]


def _duration(value_ms: int, least_ms: int, most_ms: int, key: Key) -> list[Problem]:
    if least_ms <= value_ms <= most_ms:
        return []
    found = format_duration(value_ms) if value_ms >= 0 else f"{value_ms} ms"
    bounds = f"{format_duration(least_ms)} to {format_duration(most_ms)}"
    return [Problem(key, "out of bounds", expected=bounds, found=found)]


def _arrows(names: tuple[str, ...]) -> str:
    return " → ".join(names)
