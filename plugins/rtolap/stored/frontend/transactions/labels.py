"""Labels: their form, the response for a used one, and how long they are retained."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rtolap.base.errors import DefinitionError, LabelUsed
from rtolap.stored.frontend import messages
from rtolap.stored.metastore.records import Transaction, TransactionState

LABEL_PATTERN = "^[-_A-Za-z0-9:]{1,128}$"
_LABEL = re.compile(LABEL_PATTERN.removesuffix("$") + r"\Z")

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


def checked_label(label: str) -> str:
    if not _LABEL.match(label):
        raise DefinitionError(messages.label_format(label, LABEL_PATTERN))
    return label


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
