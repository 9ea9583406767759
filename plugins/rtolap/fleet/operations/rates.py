"""The reader of brokers' rates, made from the file of sources that an operator declares."""

from __future__ import annotations

from pathlib import Path

from rtolap.fleet.monitoring.sources import read_sources
from rtolap.fleet.monitoring.topic_rates import TIMEOUT_S, SourceRates
from rtolap.fleet.snapshot.rates import RateReader


def rate_reader(sources: Path | None, *, timeout_s: float = TIMEOUT_S) -> RateReader | None:
    """Return a reader of the rates of topics; None where no sources are declared.

    A snapshot that is taken without a reader says that it has no rates. Raises DefinitionError for a file
    that cannot be used.
    """
    return None if sources is None else SourceRates(read_sources(sources), timeout_s=timeout_s)
