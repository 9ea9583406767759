"""The texts that clients match, to the letter. On the wire they follow `PREFIX`, which is matched too."""

from __future__ import annotations

from rtolap.stored.metastore.records import TransactionState
from rtolap.stored.stream_load.quorum import Shortfall

PREFIX = "errCode = 2, detailMessage = "
VISIBLE_LATER = "transaction commit successfully, BUT data will be visible later"
TIMED_OUT = "transaction is timeout and is cancelled automatically"
LABEL_CLOSED = "its label was closed"


def on_the_wire(message: str) -> str:
    return PREFIX + message


def label_used(label: str, txn_id: int) -> str:
    return f"Label [{label}] has already been used, relate to txn [{txn_id}]"


def label_closed(label: str) -> str:
    return f"Label [{label}] is closed, no load is taken under it"


def label_format(label: str, pattern: str) -> str:
    return f"Label format error. regex: {pattern}, label: {label}"


def not_found(txn_id: int) -> str:
    return f"transaction [{txn_id}] not found"


def label_not_found(label: str) -> str:
    return f"transaction with label [{label}] not found"


def not_precommitted(txn_id: int, state: TransactionState) -> str:
    """Return the message for `commit` of a transaction that is visible, committed already, or still
    prepared.
    """
    if state is TransactionState.PREPARE:
        return f"transaction [{txn_id}] is prepare, not pre-committed."
    return f"transaction [{txn_id}] is already {state.lower()}, not pre-committed."


def already_aborted(txn_id: int, reason: str) -> str:
    return f"transaction [{txn_id}] is already aborted. abort reason: {reason}"


def cannot_abort(txn_id: int, state: TransactionState) -> str:
    return f"transaction [{txn_id}] state is {state}, could not abort"


def cannot_precommit(txn_id: int, state: TransactionState) -> str:
    return f"transaction [{txn_id}] is already {state.lower()}"


def cannot_publish(txn_id: int, state: TransactionState) -> str:
    return f"transaction [{txn_id}] is {state.lower()}, not committed"


def one_phase_only(txn_id: int) -> str:
    return f"transaction [{txn_id}] was not begun with two phases, so it cannot be pre-committed"


def two_phases_only(txn_id: int) -> str:
    return f"transaction [{txn_id}] was begun with two phases, so it is pre-committed before it is committed"


def too_many_running(db: str, running: int, limit: int) -> str:
    return f"current running txns on db {db} is {running}, larger than limit {limit}"


def done(txn_id: int, operation: str) -> str:
    return f"transaction [{txn_id}] {operation} successfully."


def no_majority(txn_id: int, missing: Shortfall) -> str:
    return (
        f"Failed to commit txn {txn_id}, cause tablet {missing.tablet} succ replica num {missing.have} < "
        f"quorum replica num {missing.needed} while error backends {','.join(missing.without)}"
    )
