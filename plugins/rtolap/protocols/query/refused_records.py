"""Records that receivers refused, in words: the same at every place that reports them."""

from __future__ import annotations

from collections.abc import Mapping


def refused_text(counts: Mapping[str, int], example: Mapping[str, str]) -> str:
    """Reason → records, reason → what was wrong with one of them; empty where nothing was refused.

    *At least*, because a receiver counts what it has read itself.
    """
    total = sum(counts.values())
    if not total:
        return ""
    by_reason = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    reasons = [
        f"{reason} {number}" + (f", as {example[reason]}" if reason in example else "")
        for reason, number in by_reason
        if number
    ]
    return f"at least {total} {'record' if total == 1 else 'records'} refused ({'; '.join(reasons)})"
