"""The life of a transaction: one pure table.

                 PRECOMMIT                   COMMIT                 PUBLISH
       PREPARE ─────────────▶ PRECOMMITTED ───────────▶ COMMITTED ───────────▶ VISIBLE
          │  │                     │                        ▲
          │  └─────── COMMIT ──────┼────────────────────────┘
          │       (one phase)      │
          └───────── ABORT ────────┴─────────────────▶ ABORTED

COMMITTED never becomes ABORTED: it has its versions, and somebody may have been told. A step that was done
before is no error for who repeats it (`done_before`), except that a client that commits the second phase is
told which state it found, because clients match that text.
"""

from __future__ import annotations

from enum import StrEnum

from rtolap.base.errors import IllegalTransition
from rtolap.ledger.records import Transaction, TransactionState
from rtolap.streamload import messages


class TransactionEvent(StrEnum):
    PRECOMMIT = "PRECOMMIT"
    COMMIT = "COMMIT"
    PUBLISH = "PUBLISH"
    ABORT = "ABORT"


_S, _E = TransactionState, TransactionEvent

TRANSITIONS: dict[tuple[TransactionState, TransactionEvent], TransactionState] = {
    (_S.PREPARE, _E.PRECOMMIT): _S.PRECOMMITTED,
    (_S.PREPARE, _E.COMMIT): _S.COMMITTED,  # of one phase only
    (_S.PRECOMMITTED, _E.COMMIT): _S.COMMITTED,
    (_S.COMMITTED, _E.PUBLISH): _S.VISIBLE,
    (_S.PREPARE, _E.ABORT): _S.ABORTED,
    (_S.PRECOMMITTED, _E.ABORT): _S.ABORTED,
}

# What an event leaves behind: who repeats it finds one of these.
_DONE: dict[TransactionEvent, frozenset[TransactionState]] = {
    _E.PRECOMMIT: frozenset({_S.PRECOMMITTED}),
    _E.COMMIT: frozenset({_S.COMMITTED, _S.VISIBLE}),
    _E.PUBLISH: frozenset({_S.VISIBLE}),
    _E.ABORT: frozenset({_S.ABORTED}),
}


def done_before(state: TransactionState, event: TransactionEvent) -> bool:
    return state in _DONE[event]


def transition(transaction: Transaction, event: TransactionEvent) -> TransactionState:
    """The next state. Raises IllegalTransition with the text that clients match."""
    after = TRANSITIONS.get((transaction.state, event))
    two_steps = transaction.two_phase or event is not TransactionEvent.PRECOMMIT
    skips = transaction.two_phase and event is _E.COMMIT and transaction.state is _S.PREPARE
    if after is None or skips or not two_steps:
        raise IllegalTransition(_refusal(transaction, event))
    return after


def _refusal(transaction: Transaction, event: TransactionEvent) -> str:
    state = transaction.state
    if event is _E.ABORT:
        return messages.cannot_abort(transaction.txn_id, state)
    if state is _S.ABORTED:
        return messages.already_aborted(transaction.txn_id, transaction.reason)
    if event is _E.COMMIT:
        return messages.not_precommitted(transaction.txn_id, state)
    if event is _E.PRECOMMIT and not transaction.two_phase:
        return messages.one_phase_only(transaction.txn_id)
    if event is _E.PRECOMMIT:
        return messages.cannot_precommit(transaction.txn_id, state)
    return messages.cannot_publish(transaction.txn_id, state)
