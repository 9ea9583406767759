"""The processes that share the work of a loader or a subscription, as the page of a task shows them.

Pure: the status of a loader or a subscription → one row a process, each with the shares that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rtolap.protocols.loader.messages import LoaderProcessStatus, LoaderStatus

if TYPE_CHECKING:
    from rtolap.sep.operations import SubscriptionConsumers

SILENT = "does not answer"


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
        processes = tuple(
            _of_loader(
                process,
                process=str(process.number),
                leads=process.leads,
                shares=tuple(share.number for share in process.shares),
            )
            for process in status.processes
        )
    else:
        processes = (_of_loader(status, process="0", leads=status.alive),)
    return SharedWork(
        name=status.job,
        state=status.state,
        reason=status.reason,
        shares=status.shares,
        wanted=status.processes_wanted,
        processes=processes,
    )


def _of_loader(
    status: LoaderStatus | LoaderProcessStatus, *, process: str, leads: bool, shares: tuple[int, ...] = ()
) -> SharedProcess:
    return SharedProcess(
        process=process,
        owner=status.owner,
        state=status.phase if status.alive else SILENT,
        leads=leads,
        shares=shares,
        lag=status.lag_records,
        rate_per_s=status.rows_per_s,
        last_error=status.last_error,
    )


def processes_of_subscription(found: SubscriptionConsumers) -> SharedWork:
    """Return the consumers of a subscription, and the shares that none of them holds as a row of their own.

    The lag is that of the events that wait at a consumer; what waits in HBase is `rtolap sep status`'s.
    """
    return SharedWork(
        name=found.name,
        state=found.state,
        reason=found.problem,
        shares=found.count if found.count > 1 else None,
        wanted=found.count,
        processes=tuple(
            SharedProcess(
                process=consumer.id,
                owner=consumer.address or consumer.id,
                state=consumer.state,
                shares=consumer.shares,
                lag=consumer.waiting_events,
                rate_per_s=consumer.events_per_s,
                last_error=consumer.last_error,
            )
            for consumer in found.consumers
        ),
    )
