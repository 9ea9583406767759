"""`rtolap demo` sends real events through the whole stack, and compares every answer with a recount."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rtolap.base.errors import RtolapError
from rtolap.base.settings import Settings
from rtolap.cli.local.stack import ProgressView, warn_of_others
from rtolap.cli.output import JsonOption, console, error_console, print_json, success, warn
from rtolap.demo.airflow_api import AirflowApi
from rtolap.demo.flights import DAYS_MAX, ReplayPlan
from rtolap.demo.journal import DemoJournal, DemoOutcome, outcome
from rtolap.demo.moments import Moment
from rtolap.demo.run import Demo, DemoPlan
from rtolap.demo.screen import Screen, answers_table
from rtolap.stack.environment import airflow_line, airflow_url, mysql_line
from rtolap.stack.layout import DEFAULT_DIR, StackLayout
from rtolap.stack.lifecycle import Stack
from rtolap.stack.secrets import AIRFLOW_PASSWORD, AIRFLOW_USER, read_secret
from rtolap.stack.state import StackState

app = typer.Typer(help="Replay real events and compare every answer with a recount.")

EXIT_UNEQUAL = 1
_PRODUCE_S = 60.0  # the replay is stretched over about a minute, or sent at this rate at least:
_RATE_MIN = 150.0
_FLIGHTS_A_DAY = 923
_SETTLE_S = 600.0
_BUILD_S = 5.0  # generous, per day
_MOMENTS_OF_A_CUT = frozenset((Moment.MEMORY, Moment.READY, Moment.END))  # a few days pass some too quickly


@app.command()
def demo(
    days: Annotated[
        int, typer.Option(min=1, max=DAYS_MAX, help="Number of days, from 1 January on.")
    ] = DAYS_MAX,
    flights: Annotated[int | None, typer.Option(min=1, help="Maximum number of flights.")] = None,
    rate: Annotated[float | None, typer.Option(min=1, help="Records per second.")] = None,
    exit: Annotated[bool, typer.Option("--exit", help="Stop everything at the end.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the stack's data first.")] = False,
    dir: Annotated[Path, typer.Option("--dir", help="Folder of the stack.")] = Path(DEFAULT_DIR),
    as_json: JsonOption = False,
) -> None:
    """Start the stack, replay the flights of 2013, and query them by SQL all the time.

    Exit code 0 only if all answers were equal, at every moment, and every malformed record was kept.
    """
    stack = Stack(StackLayout(dir))
    plan = DemoPlan(
        replay=ReplayPlan(days=days, flights_max=flights),
        rate=rate or max(_RATE_MIN, days * _FLIGHTS_A_DAY / _PRODUCE_S),
        timeout_s=_SETTLE_S + days * _BUILD_S,
    )
    is_whole = days == DAYS_MAX and flights is None
    journal = DemoJournal()
    warn_of_others()
    try:
        with ProgressView() as progress:
            if fresh:
                _throw_away(stack, progress)
            state = stack.up((), {}, progress)
        os.environ.update(state.settings)
        password = read_secret(stack.layout, AIRFLOW_PASSWORD)
        airflow = AirflowApi(airflow_url(state.ports), AIRFLOW_USER, password)
        _run(plan, airflow, journal, error_console if as_json else console)
        result = outcome(journal, frozenset(Moment) if is_whole else _MOMENTS_OF_A_CUT)
        if as_json:
            print_json(result)
        else:
            report(result)
        if not exit and not as_json:
            _what_next(stack, state)
    finally:
        if exit:
            with ProgressView() as progress:
                stack.down(progress)
    if not result.is_shown:
        raise typer.Exit(EXIT_UNEQUAL)


def _run(plan: DemoPlan, airflow: AirflowApi, journal: DemoJournal, shown_on: Console) -> None:
    with Screen(shown_on, journal) as screen:
        demo_run = Demo(plan, Settings(), airflow, screen)
        try:
            demo_run.run(journal)
        except RtolapError:
            shown_on.print(answers_table(journal.shown))  # what was asked so far, before the reason
            raise
        finally:
            demo_run.close()


def _throw_away(stack: Stack, progress: ProgressView) -> None:
    """Stop the stack and delete its folder, if it is one."""
    if stack.layout.state_file.exists():
        stack.down(progress)
        shutil.rmtree(stack.layout.root)


def _what_next(stack: Stack, state: StackState) -> None:
    console.print(f"\nAirflow   {airflow_line(stack.layout, state.ports)}", soft_wrap=True)
    console.print(f"SQL       {mysql_line(stack.layout, state.ports)}", soft_wrap=True)
    console.print(f"Stop      rtolap stack down --dir {stack.layout.root}", soft_wrap=True)


def report(result: DemoOutcome) -> None:
    """Print the answers, and the fate of the malformed records."""
    console.print(answers_table(result.answers))
    if result.missing_moments:
        warn(f"not every query was asked at these moments: {', '.join(result.missing_moments)}")
    for unanswered, times in result.asked_again.items():
        warn(f"asked again, {times} times: {unanswered}")
    if 0 < result.asked == result.equal:
        success(f"{result.asked} answers, each equal to the recount of exactly its prefix")
    else:
        warn(f"{result.asked - result.equal} of {result.asked} answers differ from the recount")
    refusals = result.refusals
    if refusals is None:
        return
    if refusals.all_kept:
        reasons = ", ".join(f"{count} {reason}" for reason, count in refusals.by_reason.items())
        success(f"{refusals.sent} malformed records, each kept as a dead letter: {reasons}")
    else:
        lost, unexpected = sorted(refusals.lost), sorted(refusals.unexpected)
        warn(f"malformed records lost: {lost}; good ones refused: {unexpected} (partition, offset)")
