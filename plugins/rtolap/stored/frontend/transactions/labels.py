"""Labels: the response for a used one, and how long they are retained. Their form: `stream_load.labels`."""

from __future__ import annotations

from dataclasses import dataclass

from rtolap.base.errors import LabelUsed
from rtolap.stored.metastore.records import Transaction, TransactionState
from rtolap.stored.stream_load import messages

_JOB_STATUS = {
    TransactionState.PREPARE: "RUNNING",
    TransactionState.PRECOMMITTED: "PRECOMMITTED",
    TransactionState.COMMITTED: "FINISHED",
    TransactionState.VISIBLE: "FINISHED",
}


@dataclass(frozen=True)
class LabelPolicy:
    """Retention of the labels of finished transactions that nobody acknowledges; None: for ever.

    Those that were begun with `keep_until_acknowledged` stay until they are, whatever this says.
    """

    keep_ms: int | None = 12 * 3_600_000
    count_max_per_database: int | None = None


def existing_job_status(state: TransactionState) -> str:
    """Return RUNNING, PRECOMMITTED or FINISHED for a transaction that holds its label."""
    return _JOB_STATUS[state]


def label_used(holder: Transaction) -> LabelUsed:
    """Return the refusal that a second load under the label gets."""
    return LabelUsed(
        messages.label_used(holder.label, holder.txn_id),
        txn_id=holder.txn_id,
        existing_job_status=existing_job_status(holder.state),
    )
