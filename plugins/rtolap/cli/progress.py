"""How far a piece of work is, on the terminal of who waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rtolap.cli.output import error_console

SHOWN_AFTER_S = 2.0

T = TypeVar("T")


@contextmanager
def progress_of(
    what: str, total: int | None = None, *, counts: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show `what` is being done, from its third second on; yields a function that takes how much is done.

    With a total, the time left is shown; with `counts`, how much is done. Only a terminal gets it, on stderr,
    and it disappears at the end."""
    counted: tuple[ProgressColumn, ...] = (MofNCompleteColumn(),) if counts else ()
    if total is not None:
        counted = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("left,"))
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *counted, TimeElapsedColumn())
    progress = Progress(*columns, console=error_console, transient=True)
    task = progress.add_task(what, total=total)
    lock, is_over = threading.Lock(), False

    def show() -> None:
        with lock:
            if not is_over:
                progress.start()

    timer = threading.Timer(SHOWN_AFTER_S, show)
    timer.daemon = True
    if error_console.is_terminal:
        timer.start()
    try:
        yield lambda done: progress.update(task, completed=done)
    finally:
        timer.cancel()
        with lock:
            is_over = True
            if progress.live.is_started:  # else it would end a line that it never began
                progress.stop()


def tracked(items: Sequence[T], what: str) -> Iterator[T]:
    """Yield the items, and show how many of them are done."""
    with progress_of(what, len(items)) as done:
        for number, item in enumerate(items):
            yield item
            done(number + 1)
