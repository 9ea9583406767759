"""Joined texts within a bound, text by text: what a group's values should be shown as."""

from __future__ import annotations

from collections.abc import Iterable


def joined(values: Iterable[str | None], bytes_max: int, separator: str = ",") -> tuple[str | None, bool]:
    """Return the smallest distinct texts that fit, joined, and whether there are more; None of no values."""
    texts = sorted({value.encode() for value in values if value is not None})
    kept: list[bytes] = []
    for text in texts:
        if sum(len(each) + 1 for each in kept) + len(text) + 1 > bytes_max:
            break
        kept.append(text)
    return (separator.join(each.decode() for each in kept) if texts else None), len(kept) < len(texts)


def smallest_texts(values: Iterable[str | None], bytes_max: int) -> bytes | None:
    """Return the bytes of a partial."""
    texts = sorted({value.encode()[: bytes_max + 1] for value in values if value is not None})
    kept, count = b"", 0
    for text in texts:
        if count <= bytes_max:
            kept, count = kept + text + b"\xff", count + len(text) + 1
    return bytes_max.to_bytes(4, "big") + kept if texts else None
