"""`rtolap watermark hosts`, `units`, `drain` and `remove`: who is behind, and letting hosts leave."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.base.decoding import convert
from rtolap.base.errors import DefinitionError
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, console, print_json, print_table, report, success, warn
from rtolap.cli.watermark.show import UNITS_MAX, unit_state
from rtolap.cli.watermark.words import Name, at, complete_level, span
from rtolap.model.application import Application
from rtolap.model.instants import instant_ms
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.watermark.messages import HostsChanged

Level = Annotated[str | None, typer.Option(help="Only this level.", autocompletion=complete_level)]
Source = Annotated[
    str | None,
    typer.Option(
        "--level", help="Name of the source. Needed where there are several.", autocompletion=complete_level
    ),
]
Hosts = Annotated[list[str], typer.Argument(help="Names of the hosts, as listed.")]


def hosts(
    application: Name,
    level: Source = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of hosts.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the hosts that are furthest behind."""
    with coordinator_client() as client:
        info = client.application_hosts(application, level, limit)
    if as_json:
        print_json(info)
        return
    rows = [
        (host.host, at(host.latest_ms), span(host.behind_ms), host.share_ppm, _yes(host.holds), host.hint)
        for host in info.behind
    ]
    if rows:
        print_table(("host", "read up to", "behind", "owes ppm", "holds", "hint"), rows)
    elif not info.counting:
        success(f"no host of {info.level} counts; a source with the rule `partitions` has none")
    else:
        success(f"no host of {info.level} is behind")
    console.print(
        f"{info.level} is at {at(info.watermark_ms) or 'unknown'}; {info.counting} hosts count, "
        f"{info.unseen} never seen, {info.holding} hold the watermark",
    )
    if info.awaited_partitions:
        waiting = ", ".join(map(str, info.awaited_partitions))
        warn(f"partitions that have not reported to this owner yet: {waiting}")
    if info.list_problem:
        warn(info.list_problem)


def units(
    application: Name,
    level: Level = None,
    limit: Annotated[int, typer.Option(min=1, max=UNITS_MAX, help="Maximum number of units.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the units of the levels (processor and key group), those with the oldest work first."""
    with coordinator_client() as client:
        info = client.application_units(application, level, limit)
    if as_json:
        print_json(info)
        return
    if not info.units:
        success(f"no unit of {level or application} reports")
        return
    rows = [
        (
            unit.level,
            unit.processor,
            unit.key_group,
            at(unit.oldest_work_ms),
            span(unit.behind_ms),
            unit_state(unit),
        )
        for unit in info.units
    ]
    print_table(("level", "processor", "key group", "oldest work", "behind", "state"), rows)
    numbers = ", ".join(f"{name} {count}" for name, count in info.counts.items())
    console.print(f"units: {numbers}", markup=False)


def drain(
    application: Name,
    hosts: Hosts,
    level: Source = None,
    end: Annotated[
        str | None, typer.Option(help="Instant from which they log nothing. Default: now.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Remove hosts once they are read to their end, at the latest after the list's grace time."""
    with coordinator_client() as client:
        source = level or _only_source(client, application)
        now_ms = client.application_watermarks(application).now_ms
        end_ms = now_ms if end is None else instant_ms(end)
        changed = client.change_hosts(application, source, "drain", hosts, end_ms)
    _report(changed, f"{len(hosts)} hosts of {source} leave once they are read to {at(end_ms)}", as_json)


def remove(
    application: Name,
    hosts: Hosts,
    level: Source = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove hosts at once, because they are gone for good.

    Nothing waits for their missing reports. A file, address or node that still names them lists them
    again.
    """
    with coordinator_client() as client:
        source = level or _only_source(client, application)
        if not yes:
            typer.confirm(f"Remove {', '.join(hosts)} of {source}?", abort=True, err=True)
        changed = client.change_hosts(application, source, "remove", hosts)
    _report(changed, f"{len(hosts)} hosts of {source} have left", as_json)


def _only_source(client: CoordinatorClient, application: str) -> str:
    declared = convert(client.application(application).definition, Application)
    if len(declared.sources) > 1:
        names = ", ".join(source.name for source in declared.sources)
        raise DefinitionError("the source is not given", expected=f"--level, one of {names}")
    return declared.sources[0].name


def _report(changed: HostsChanged, done: str, as_json: bool) -> None:
    report(changed, f"{done}; {changed.counting} count", as_json=as_json)


def _yes(true: bool) -> str:
    return "yes" if true else ""
