"""Letters with what became of each: the topic has the records, the ledger their states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rtolap.events.rejects import BATCH_LABEL, BATCH_SHA256
from rtolap.kafka.dead_letters import KeptLetter
from rtolap.protocols.loader.letters import Letter
from rtolap.stored.metastore.dead_letter_sets import LetterSet
from rtolap.stored.metastore.dead_letters import ActionKind, LetterAction

VALUE_CHARS_MAX = 2_000
PENDING, NOT_OPEN, OF_BATCH, UNKNOWN = "PENDING", "NOT_OPEN", "OF_BATCH", "UNKNOWN"


def shortened(letter: KeptLetter) -> KeptLetter:
    """Return a letter with as much of its value as a list shows, so that thousands fit into memory."""
    return letter if letter.value is None else letter._replace(value=letter.value[: 4 * VALUE_CHARS_MAX])


def listed(
    letters: Iterable[KeptLetter],
    sets: Iterable[LetterSet],
    actions: Mapping[int, LetterAction],
    pending: Collection[str],
) -> tuple[Letter, ...]:
    """Return the letters, the newest first, each record once: of a batch that was sent again, as it was sent.

    `pending`: labels of batches that are not loaded. `letters` are in the order of their topic.
    """
    by_label: dict[str, list[LetterSet]] = {}
    for each in sets:
        by_label.setdefault(each.label, []).append(each)
    found: dict[tuple[str, int, int], Letter] = {}
    for letter in letters:
        label = letter.text(BATCH_LABEL)
        kept = _set_of(letter, by_label.get(label, ()))
        shown = _shown(letter, label, kept, actions, label in pending)
        place = (label, letter.partition, letter.offset)
        if place in found and kept is None and found[place].state not in (PENDING, NOT_OPEN, UNKNOWN):
            continue  # of a content that was never sent
        found.pop(place, None)
        found[place] = shown
    return tuple(reversed(found.values()))


def _set_of(letter: KeptLetter, sets: Iterable[LetterSet]) -> LetterSet | None:
    place, sha256 = (letter.partition, letter.offset), letter.text(BATCH_SHA256)
    return next((kept for kept in sets if kept.batch_sha256 == sha256 and place in kept.places), None)


def _shown(
    letter: KeptLetter,
    label: str,
    kept: LetterSet | None,
    actions: Mapping[int, LetterAction],
    is_pending: bool,
) -> Letter:
    if kept is not None:
        state = kept.state.value
    elif letter.partition < 0:
        state = OF_BATCH
    elif not label:
        state = UNKNOWN
    else:
        state = PENDING if is_pending else NOT_OPEN
    action = None if kept is None or kept.action_id is None else actions.get(kept.action_id)
    dropped = action is not None and action.kind is ActionKind.DROP
    value = None if letter.value is None else letter.value.decode("utf-8", "replace")
    return Letter(
        partition=letter.partition,
        offset=letter.offset,
        state=state,
        reason=letter.text("reason"),
        detail=letter.text("detail"),
        value=None if value is None else value[:VALUE_CHARS_MAX],
        batch=label,
        replay="" if action is None else action.label,
        who="" if action is None else action.who,
        at_ms=None if action is None else action.finished_at_ms,
        note=action.detail if action is not None and dropped else "" if kept is None else kept.detail,
    )
