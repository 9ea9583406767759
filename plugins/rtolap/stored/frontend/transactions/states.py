"""The life of a transaction: two pure tables, of those of one phase and of those of two.

                 COMMIT               PUBLISH
       PREPARE ──────────▶ COMMITTED ──────────▶ VISIBLE
          │
          └─ ABORT ──▶ ABORTED

                PRECOMMIT               COMMIT_PRECOMMITTED              PUBLISH
       PREPARE ──────────▶ PRECOMMITTED ──────────▶ COMMITTED ──────────▶ VISIBLE
          │                     │
          └───────── ABORT ─────┴──▶ ABORTED

COMMIT is a load's own, COMMIT_PRECOMMITTED a client's second phase: one that came while a load of one phase
is still under way would commit that without its rows. COMMITTED never becomes ABORTED: it has its versions,
and a client may have its response. A step that was done before is no error for who repeats it: it leads to
where the transaction is already (`done_before`). But a client that commits the second phase again gets a
response with the state it found, because clients match that text.
"""

from __future__ import annotations

from enum import StrEnum

from rtolap.base.errors import IllegalTransition
from rtolap.stored.metastore.records import Transaction, TransactionState
from rtolap.stored.stream_load import messages


class TransactionEvent(StrEnum):
    PRECOMMIT = "PRECOMMIT"
    COMMIT = "COMMIT"
    COMMIT_PRECOMMITTED = "COMMIT_PRECOMMITTED"
    PUBLISH = "PUBLISH"
    ABORT = "ABORT"


_S, _E = TransactionState, TransactionEvent
_Table = dict[tuple[TransactionState, TransactionEvent], TransactionState]

_OF_BOTH: _Table = {
    (_S.COMMITTED, _E.PUBLISH): _S.VISIBLE,
    (_S.VISIBLE, _E.PUBLISH): _S.VISIBLE,
    (_S.PREPARE, _E.ABORT): _S.ABORTED,
    (_S.ABORTED, _E.ABORT): _S.ABORTED,
}
ONE_PHASE: _Table = {
    **_OF_BOTH,
    (_S.PREPARE, _E.COMMIT): _S.COMMITTED,
    (_S.COMMITTED, _E.COMMIT): _S.COMMITTED,
    (_S.VISIBLE, _E.COMMIT): _S.VISIBLE,
}
TWO_PHASES: _Table = {
    **_OF_BOTH,
    (_S.PREPARE, _E.PRECOMMIT): _S.PRECOMMITTED,
    (_S.PRECOMMITTED, _E.PRECOMMIT): _S.PRECOMMITTED,
    (_S.PRECOMMITTED, _E.COMMIT_PRECOMMITTED): _S.COMMITTED,
    (_S.PRECOMMITTED, _E.ABORT): _S.ABORTED,
}


def transition(transaction: Transaction, event: TransactionEvent) -> TransactionState:
    """Return the next state. Raises IllegalTransition with the text that clients match."""
    after = _table(transaction).get((transaction.state, event))
    if after is None:
        raise IllegalTransition(_refusal(transaction, event))
    return after


def done_before(transaction: Transaction, event: TransactionEvent) -> bool:
    """Return True if the event changes nothing, as a repeat of one that was done."""
    return _table(transaction).get((transaction.state, event)) is transaction.state


def _table(transaction: Transaction) -> _Table:
    return TWO_PHASES if transaction.two_phase else ONE_PHASE


def _refusal(transaction: Transaction, event: TransactionEvent) -> str:
    txn_id, state = transaction.txn_id, transaction.state
    if event is _E.ABORT:
        return messages.cannot_abort(txn_id, state)
    if state is _S.ABORTED:
        return messages.already_aborted(txn_id, transaction.reason)
    if event is _E.COMMIT_PRECOMMITTED:
        return messages.not_precommitted(txn_id, state)
    if event is _E.COMMIT:
        return messages.two_phases_only(txn_id)
    if event is _E.PRECOMMIT and not transaction.two_phase:
        return messages.one_phase_only(txn_id)
    if event is _E.PRECOMMIT:
        return messages.cannot_precommit(txn_id, state)
    return messages.cannot_publish(txn_id, state)
