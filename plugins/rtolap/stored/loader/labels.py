"""A label says which job, which incarnation of it and which batch. Nothing in it is random, and it can be
read in one way only, for its last two parts are numbers.

    flights_1_42     job flights, incarnation 1, batch 42
"""

from __future__ import annotations


def label_of(job: str, incarnation: int, sequence: int) -> str:
    return f"{job}_{incarnation}_{sequence}"
