"""History is read by this process for a statement, or by Spark where the read is large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from rtolap.base.errors import DefinitionError, TooLarge
from rtolap.model.quantities import size_text

EngineWish = Literal["auto", "local", "spark"]  # of a session: `SET rtolap_engine`
WISHES: tuple[EngineWish, ...] = get_args(EngineWish)
SPARK_BYTES_MIN = 1 << 30

_DECLARE = "declare a Spark service (RTOLAP_HISTORY_SPARK)"


class HistorySize(NamedTuple):
    """The files that a read needs, of versions for which no result is kept.

    Attributes:
        bytes: of the files as they are stored.
    """

    files: int
    rows: int
    bytes: int

    def __str__(self) -> str:
        return f"{size_text(self.bytes)} in {self.files} files"


class EngineChoice(NamedTuple):
    """The engine that reads, and the reason in words."""

    engine: Literal["local", "spark"]
    reason: str


@dataclass(frozen=True)
class EngineRules:
    """The rules by which the engine is chosen.

    Attributes:
        has_spark: True if a Spark service is declared.
        spark_bytes_min: reads of fewer bytes stay in this process.
        local_bytes_max: larger reads are refused in this process; 0: none is.
    """

    has_spark: bool = False
    spark_bytes_min: int = SPARK_BYTES_MIN
    local_bytes_max: int = 0

    def needs_size(self, wish: EngineWish) -> bool:
        """Return True if the choice depends on the size of the read."""
        return self.local_bytes_max > 0 or (self.has_spark and wish == "auto")

    def choose(self, wish: EngineWish, size: HistorySize | None) -> EngineChoice:
        """Return the engine for a read.

        Args:
            size: what has to be read; None where `needs_size` is False.

        Raises DefinitionError where Spark is wished for and not declared, and TooLarge for a read that this
        process may not do.
        """
        if wish == "spark":
            if not self.has_spark:
                raise DefinitionError(
                    "the session asks for history on Spark, and this query service has no Spark service",
                    expected="RTOLAP_HISTORY_SPARK in the settings of the query service",
                    action="SET rtolap_engine = auto, or declare a Spark service",
                )
            return EngineChoice("spark", "rtolap_engine is spark")
        if wish == "auto" and self.has_spark:
            assert size is not None, "see needs_size"
            if size.files and size.bytes >= self.spark_bytes_min:
                least = size_text(self.spark_bytes_min)
                return EngineChoice("spark", f"{size} are at least RTOLAP_HISTORY_SPARK_BYTES_MIN, {least}")
        self._check_local(size)
        if wish == "local":
            return EngineChoice("local", "rtolap_engine is local")
        if not self.has_spark:
            return EngineChoice("local", "no Spark service is declared")
        return EngineChoice(
            "local", f"{size} are less than RTOLAP_HISTORY_SPARK_BYTES_MIN, {size_text(self.spark_bytes_min)}"
        )

    def _check_local(self, size: HistorySize | None) -> None:
        if size is None or not self.local_bytes_max or size.bytes <= self.local_bytes_max:
            return
        raise TooLarge(
            "the statement reads more history than this query service may read by itself",
            expected=f"at most {size_text(self.local_bytes_max)}, RTOLAP_HISTORY_LOCAL_BYTES_MAX",
            found=str(size),
            action="SET rtolap_engine = spark" if self.has_spark else f"{_DECLARE}, or ask for less time",
        )
