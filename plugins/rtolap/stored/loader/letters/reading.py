"""Letters become a batch of records again, as the loader has read them from its topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from rtolap.base.errors import DefinitionError
from rtolap.events.rejects import BATCH_LABEL, BATCH_SHA256, SOURCE_PREFIX, TIMESTAMP_MS
from rtolap.kafka.dead_letters import KeptLetter
from rtolap.kafka.interfaces import Batch
from rtolap.protocols.loader.letters import LetterSelection
from rtolap.stored.metastore.dead_letter_sets import LetterSet
from rtolap.stored.metastore.places import Places

_SELECTED_MAX = 100_000


class Chosen:
    """The letters that a person has chosen. Raises DefinitionError for a place that is none."""

    def __init__(self, selection: LetterSelection) -> None:
        self._reason = selection.reason
        self._places = frozenset(map(_place, selection.places[: _SELECTED_MAX + 1]))
        if len(selection.places) > _SELECTED_MAX:
            raise DefinitionError("too many places are named", expected=f"at most {_SELECTED_MAX}")

    @property
    def is_all(self) -> bool:
        return not self._reason and not self._places

    def __contains__(self, letter: KeptLetter) -> bool:
        if self._reason and letter.text("reason") != self._reason:
            return False
        return not self._places or (letter.partition, letter.offset) in self._places

    def of_sets(self, sets: Iterable[LetterSet], letters: Iterable[KeptLetter]) -> dict[str, Places]:
        """Return the chosen records of these sets, by the label of their batch. Letters are read only where
        their reasons matter."""
        if not self._reason:
            chosen = Places.of(self._places)
            return joined((kept.label, kept.places & chosen if chosen else kept.places) for kept in sets)
        found: dict[str, set[tuple[int, int]]] = {}
        for letter in open_letters(sets, letters):
            if letter in self:
                found.setdefault(letter.text(BATCH_LABEL), set()).add((letter.partition, letter.offset))
        return {label: Places.of(places) for label, places in found.items()}


def joined(parts: Iterable[tuple[str, Places]]) -> dict[str, Places]:
    """Return the records by label, of all parts."""
    found: dict[str, Places] = {}
    for label, places in parts:
        if places:
            found[label] = found.get(label, Places()) | places
    return found


def open_letters(sets: Iterable[LetterSet], letters: Iterable[KeptLetter]) -> Iterator[KeptLetter]:
    """Yield the letters of the records of these sets, each once: copies are of the same content, because the
    checksum of their batch is that of the batch that was sent."""
    by_batch: dict[tuple[str, str], list[Places]] = {}
    for kept in sets:
        by_batch.setdefault((kept.label, kept.batch_sha256), []).append(kept.places)
    wanted: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for letter in letters:
        batch = (letter.text(BATCH_LABEL), letter.text(BATCH_SHA256))
        if batch not in by_batch:
            continue
        if batch not in wanted:
            wanted[batch] = {place for places in by_batch[batch] for place in places}
        if (place := (letter.partition, letter.offset)) in wanted[batch]:
            wanted[batch].discard(place)
            yield letter


def places_of(letters: Iterable[KeptLetter]) -> dict[str, Places]:
    """Return where the letters' records were, by the label of their batch."""
    found: dict[str, list[tuple[int, int]]] = {}
    for letter in letters:
        found.setdefault(letter.text(BATCH_LABEL), []).append((letter.partition, letter.offset))
    return {label: Places.of(places) for label, places in found.items()}


def batch_of(letters: Sequence[KeptLetter], sources: Iterable[str]) -> Batch:
    """Return the records of the letters in order, with their timestamps and `sources`."""
    return Batch(
        [letter.value for letter in letters],
        np.array([letter.partition for letter in letters], np.int32),
        np.array([letter.offset for letter in letters], np.int64),
        np.array([int(letter.text(TIMESTAMP_MS) or -1) for letter in letters], np.int64),
        texts={source: [_source(letter.headers, source) for letter in letters] for source in sources},
    )


def incomplete(letter: KeptLetter, sources: Iterable[str]) -> str:
    """Return why a letter is not the whole record that the definition reads; "" where it is."""
    if "value_bytes" in letter.headers:
        return f"too_large: of {letter.text('value_bytes')} bytes only the beginning is kept"
    missing = [source for source in sources if f"{SOURCE_PREFIX}{source}" not in letter.headers]
    if missing:
        return f"not_kept: {', '.join(missing)} was no source of a column when the record was refused"
    return ""


def _source(headers: Mapping[str, bytes], source: str) -> bytes | None:
    text = headers[f"{SOURCE_PREFIX}{source}"]
    return text[1:] if text else None


def _place(text: str) -> tuple[int, int]:
    partition, slash, offset = text.strip().partition("/")
    if not (slash and partition.isdecimal() and offset.isdecimal()):
        raise DefinitionError("not the place of a record", expected="PARTITION/OFFSET", found=text[:80])
    return int(partition), int(offset)
