"""The screen of the demonstration: progress while it runs, a table of answers at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rtolap.demo.journal import DemoJournal, Entry
from rtolap.demo.moments import Situation
from rtolap.demo.recount import Rows

_CELL_CHARS = 46
_UNSEEN = Situation(moments=frozenset(), states={}, building=0, pending=0)
_LINE_S = 5.0  # how often a line is printed where there is no terminal


@dataclass
class ReplayProgress:
    """Numbers of the present moment."""

    phase: str = "starting"
    total: int = 0
    produced: int = 0
    queryable: int = 0
    situation: Situation = _UNSEEN


class Screen:
    """Live on a terminal; elsewhere a line now and then."""

    def __init__(self, console: Console, journal: DemoJournal) -> None:
        self.progress = ReplayProgress()
        self._console = console
        self._journal = journal
        self._printed_s = 0.0
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *unused: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def step(self, phase: str) -> None:
        self.progress.phase = phase
        if not self._console.is_terminal:
            self._console.print(phase, highlight=False)

    def tick(self) -> None:
        """Update the screen in every round; print a line now and then where nothing is live."""
        if not self._console.is_terminal and time.monotonic() - self._printed_s > _LINE_S:
            self._printed_s = time.monotonic()
            self._console.print(
                " · ".join(f"{name} {value}" for name, value in self._numbers()), highlight=False
            )

    def _numbers(self) -> list[tuple[str, str]]:
        at, cube, journal = self.progress, self.progress.situation, self._journal
        states = ", ".join(f"{count} {state}" for state, count in sorted(cube.states.items())) or "none yet"
        return [
            ("produced", f"{at.produced} of {at.total}"),
            ("queryable", str(at.queryable)),
            ("lag", str(max(0, at.produced - at.queryable))),
            ("receivers", "; ".join(cube.receivers) or "none yet"),
            ("segments", states),
            ("builds running", str(cube.building)),
            ("on the way to history", str(cube.pending)),
            ("answers", f"{journal.asked}, {journal.equal} equal to the recount"),
        ]

    def _render(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        for name, value in self._numbers():
            grid.add_row(Text(name, style="dim"), value)
        bar = ProgressBar(total=max(1, self.progress.total), completed=self.progress.produced, width=60)
        return Group(Text(self.progress.phase, style="bold"), bar, grid)


def answers_table(shown: Sequence[Entry]) -> Table:
    """Return a table of queries and moments: the answer, the recount of the same prefix, and whether they are
    equal."""
    table = Table(
        title="The same SQL at every moment, beside a recount of the source rows", title_justify="left"
    )
    for name in ("query", "moment", "rtolap", "recount", "equal"):
        table.add_column(name, overflow="fold")
    table.add_column("events", justify="right")
    order = {entry.query: position for position, entry in enumerate(reversed(shown))}
    for entry in sorted(shown, key=lambda entry: -order[entry.query]):
        mark = Text("yes", style="green") if entry.equal else Text("NO", style="bold red")
        row = (entry.query, entry.moment.value, _short(entry.answer), _short(entry.recount))
        table.add_row(*row, mark, str(entry.events))
    return table


def _short(rows: Rows) -> str:
    """Return the first row, and how many there are."""
    if not rows:
        return "no rows"
    first = ", ".join("NULL" if cell is None else str(cell) for cell in rows[0])
    if len(first) > _CELL_CHARS:
        first = first[: _CELL_CHARS - 1] + "…"
    return first if len(rows) == 1 else f"{first}  (+{len(rows) - 1} rows)"
