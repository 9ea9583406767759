"""`rtolap segments merge`: small segments of history in larger sets of files."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, print_json, print_table, success, warn
from rtolap.model.merging.intervals import LEVELS
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.coordinator.merge_jobs import Settled, merge_all, process_key
from rtolap.protocols.coordinator.messages import MergePlans


def merge(
    cube: Annotated[str, typer.Argument(help="Name of the cube.")],
    to: Annotated[
        list[str] | None, typer.Option(help="day or month. Default: what the cube's definition says.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be merged.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Merge small segments into larger sets of files. Answers stay the same.

    Spark runs at the agent of this host. Exits with 1 where a set could not be written.
    """
    levels = tuple(to or ())
    if unknown := sorted(set(levels) - set(LEVELS)):
        raise DefinitionError("not a level", expected=" or ".join(LEVELS), found=", ".join(unknown))
    if dry_run:
        with coordinator_client() as client:
            plans = client.plan_merges(cube, to=levels, dry_run=True)
        if as_json:
            print_json(plans)
        else:
            _show_plans(plans)
        return
    settings = Settings()
    agent = AgentClient(settings.agent_url(), settings.token())
    with agent, coordinator_client() as client:
        rounds = merge_all(
            *(agent, client, cube),
            to=levels,
            options=("--master", settings.spark_master, "--name", process_key(cube)),
            planned=lambda plans: None if as_json else _show_plans(plans),
        )
    done = {name: [each for one in rounds for each in getattr(one, name)] for name in Settled._fields}
    if as_json:
        print_json(done)
    else:
        for text in done["void"]:
            warn(f"not merged, plan it again: {text}")
        for interval in done["unwritten"]:
            warn(f"not written: {interval}")
        for line in done["log_tail"]:
            warn(line)
        success(f"{len(done['merged'])} intervals of {cube} are merged")
    if done["unwritten"]:
        raise typer.Exit(1)


def _show_plans(plans: MergePlans) -> None:
    print_table(
        ("level", "interval", "segments", "events"),
        [(each.level, each.interval, each.segments, each.events) for each in plans.merges],
    )
    for refused in plans.refused:
        warn(f"{refused.level} {refused.interval} is not merged now: {refused.reason}")
    success(
        f"{len(plans.merges)} to merge, {plans.left} more after these, {plans.merged} merged, "
        f"{plans.too_new} too new"
    )
