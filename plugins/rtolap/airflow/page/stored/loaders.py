"""Loaders, as their agent knows them, with what the process of each says of its job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rtolap.airflow.declared import RunningLoader, loader_of
from rtolap.airflow.page.answers import Asked, ask_all
from rtolap.airflow.page.stored.messages import LetterPage, LoaderRow, Loaders
from rtolap.airflow.page.tasks import task_link
from rtolap.base.decoding import copied
from rtolap.base.errors import NotFound
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.loader.letters import LetterList
from rtolap.protocols.loader.messages import LoaderStatus

_LAST_LINES = 3  # of the log of a process that has ended: there a loader says why


def loaders_of(
    processes: Sequence[ProcessStatus],
    ask: Callable[[RunningLoader], LoaderStatus],
    *,
    now_ms: int,
    answer_s_max: float,
) -> Loaders:
    """Return all loaders by name. `ask` is called for those that run, for several at once; who has not
    answered after `answer_s_max` is listed without figures."""
    known: dict[str, tuple[RunningLoader, ProcessStatus]] = {}
    for process in processes:
        loader = loader_of(process)
        # Of several processes of a job, any answers for all of it: one that runs is better than another.
        if loader is not None and (loader.name not in known or process.is_live):
            known[loader.name] = (loader, process)
    asked = ask_all(
        {name: partial(ask, loader) for name, (loader, process) in known.items() if process.is_live},
        answer_s_max,
    )
    rows = [_row(name, process, asked.get(name)) for name, (_, process) in sorted(known.items())]
    return Loaders(now_ms=now_ms, loaders=tuple(rows))


def letters_of(name: str, found: LetterList, *, now_ms: int) -> LetterPage:
    """Return the dead letters of a loader, as its process has answered. Raises NotFound where the process is
    another loader's by now."""
    if found.job != name:
        raise NotFound(f"loader {found.job} answers at the port of {name}")
    return LetterPage(
        now_ms=now_ms,
        loader=name,
        topic=found.topic,
        letters=found.letters,
        counts=dict(sorted(found.counts.items())),
        reasons=dict(sorted(found.reasons.items())),
        cut=found.cut,
    )


def _row(name: str, process: ProcessStatus, asked: Asked[LoaderStatus] | None) -> LoaderRow:
    def unknown(error: str) -> LoaderRow:
        return LoaderRow(
            name=name, state=process.state, reason=process.reason, error=error, task=task_link(process)
        )

    if asked is None:
        return unknown(" | ".join(("its process does not run", *process.log_tail[-_LAST_LINES:])))
    status = asked.answer
    if status is None:
        return unknown(asked.error)
    if status.job != name:  # its port is another's by now
        return unknown(f"loader {status.job} answers at its port")
    return copied(
        LoaderRow,
        status,
        name=name,
        table=f"{status.database}.{status.table}",
        error="",
        loaded_ms=status.last_loaded_ms,
        reason=status.reason or status.last_error,
        task=task_link(process),
    )
