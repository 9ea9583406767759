"""What the page of a task shows of the processes that share its work: of a loader, or of a subscription.

Pure: the status of a loader or a subscription → one row a process, each with the shares that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rtolap.protocols.loader.messages import LoaderProcessStatus, LoaderStatus

if TYPE_CHECKING:
    from rtolap.sep.subscriptions.states import ShareState, SubscriptionState

SILENT = "does not answer"
STANDS_BY = "stands by"
NOBODY = "nobody holds it"


class SharedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process and its shares.

    Attributes:
        process: its number, or its id where it has none; "" for shares that no process has.
        owner: address and id of the process, as the ledger or ZooKeeper has it.
        state: what it does now.
        leads: it assigns the shares.
        shares: numbers of the shares that it has; empty where the work is not divided.
        lag: records or edits that it has not finished; None where that is not known.
        rate_per_s: rows or events of the last minute, or of the last look.
        last_error: why it does not get on; "" where it does.
    """

    process: str
    owner: str
    state: str
    leads: bool = False
    shares: tuple[int, ...] = ()
    lag: int | None = None
    rate_per_s: float = 0.0
    last_error: str = ""


class SharedWork(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a loader or a subscription.

    Attributes:
        state: of the job or the subscription.
        reason: why it is in its state.
        shares: number of the shares; None where the work is not divided.
        wanted: how many processes are to run; None where that is not known.
    """

    name: str
    state: str
    reason: str = ""
    shares: int | None = None
    wanted: int | None = None
    processes: tuple[SharedProcess, ...] = ()


def processes_of_loader(status: LoaderStatus) -> SharedWork:
    """Return the processes of a loader. One that is not divided has a single process, without a share."""
    if status.processes or status.shares is not None:
        processes = tuple(_of_loader(process) for process in status.processes)
    else:
        processes = (
            SharedProcess(
                process="0",
                owner=status.owner,
                state=status.phase if status.alive else SILENT,
                leads=status.alive,
                lag=status.lag_records,
                rate_per_s=status.rows_per_s,
                last_error=status.last_error,
            ),
        )
    return SharedWork(
        name=status.job,
        state=status.state,
        reason=status.reason,
        shares=status.shares,
        wanted=status.processes_wanted,
        processes=processes,
    )


def _of_loader(status: LoaderProcessStatus) -> SharedProcess:
    return SharedProcess(
        process=str(status.number),
        owner=status.owner,
        state=status.phase if status.alive else SILENT,
        leads=status.leads,
        shares=tuple(share.number for share in status.shares),
        lag=status.lag_records,
        rate_per_s=status.rows_per_s,
        last_error=status.last_error,
    )


def processes_of_subscription(state: SubscriptionState) -> SharedWork:
    """Return the consumers of a subscription, and the shares that none of them holds as a row of their own.

    The lag is that of the events that wait at a consumer; what waits in HBase is `rtolap sep status`'s.
    """
    count = 1 if state.record is None else state.record.subscription.consumers
    if count == 1:
        delivery = state.delivery
        rows = [
            SharedProcess(
                process="" if delivery is None else delivery.consumer,
                owner=", ".join(state.ports),
                state=state.state,
                leads=bool(state.ports),
                lag=None if delivery is None else delivery.waiting_events,
                rate_per_s=0.0 if delivery is None else delivery.events_per_s,
                last_error=_error(state.problem, "" if delivery is None else delivery.last_error),
            )
        ]
    else:
        rows = [
            _of_shares(consumer, consumer, [each for each in state.shares if each.consumer == consumer])
            for consumer in state.consumers
        ]
        free = [each for each in state.shares if each.consumer not in state.consumers]
        if free:
            rows.append(msgspec.structs.replace(_of_shares("", "", free), state=NOBODY))
    return SharedWork(
        name=state.name,
        state=state.state,
        reason=state.problem,
        shares=count if count > 1 else None,
        wanted=count,
        processes=tuple(rows),
    )


def _of_shares(process: str, owner: str, shares: list[ShareState]) -> SharedProcess:
    published = [share.delivery for share in shares if share.delivery is not None]
    stopped = [each.stopped for each in published if each.stopped]
    return SharedProcess(
        process=process,
        owner=owner,
        state="stopped" if stopped else "delivers" if shares else STANDS_BY,
        shares=tuple(share.share for share in shares),
        lag=sum(each.waiting_events for each in published) if published else None,
        rate_per_s=sum(each.events_per_s for each in published),
        last_error=_error(*stopped, *(each.last_error for each in published)),
    )


def _error(*words: str) -> str:
    return "; ".join(dict.fromkeys(filter(None, words)))
