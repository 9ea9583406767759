"""The report of a demonstration, for people."""

from __future__ import annotations

from rtolap.cli.output import console, success, warn
from rtolap.demo.outcome import Outcome
from rtolap.demo.screen import answers_table


def report(found: Outcome) -> None:
    """The answers, and what became of the malformed records, for people."""
    console.print(answers_table(found.answers))
    if found.missing_moments:
        warn(f"not every query was asked at these moments: {', '.join(found.missing_moments)}")
    for why, times in found.asked_again.items():
        warn(f"asked again, {times} times: {why}")
    if 0 < found.asked == found.equal:
        success(f"{found.asked} answers, each equal to the recount of exactly its prefix")
    else:
        warn(f"{found.asked - found.equal} of {found.asked} answers differ from the recount")
    refusals = found.refusals
    if refusals is None:
        return
    if refusals.all_kept:
        reasons = ", ".join(f"{count} {reason}" for reason, count in refusals.by_reason.items())
        success(f"{refusals.sent} malformed records, each kept as a dead letter: {reasons}")
    else:
        lost, unexpected = sorted(refusals.lost), sorted(refusals.unexpected)
        warn(f"malformed records lost: {lost}; good ones refused: {unexpected} (partition, offset)")
