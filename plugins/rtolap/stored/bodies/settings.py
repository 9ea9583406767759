"""Bounds on what one body may take."""

from __future__ import annotations

import msgspec

from rtolap.base.errors import DefinitionError

_TEXT_BYTES_MAX = 1 << 30  # Arrow's places in text are 32 bits wide


class BodySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of decoding.

    Attributes:
        chunk_bytes: how much text is decoded at once; it should fit the processor's cache.
        record_bytes_max: a longer record ends the load.
        ratio_max: a body that unpacks to more than so many times its size ends the load.
        ratio_free_bytes: below this much unpacked, `ratio_max` is not looked at.
        spool_bytes_max: of a body of parquet and orc, which are read from their end.
        spool_memory_bytes_max: of a body of parquet that is held in memory instead of a file.
        rejected_rows_max: the most refused rows of one batch that are reported with text and reason.
        orc_memory_bytes_max: of the process that unpacks an ORC body, stripe by stripe.
        expression_memory_bytes_max: of the engine of `columns`, `where` and `delete`.
    """

    chunk_bytes: int = 1 << 20
    record_bytes_max: int = 64 << 20
    ratio_max: int = 1000
    ratio_free_bytes: int = 64 << 20
    spool_bytes_max: int = 16 << 30
    spool_memory_bytes_max: int = 64 << 20
    rejected_rows_max: int = 1000
    orc_memory_bytes_max: int = 1 << 30
    expression_memory_bytes_max: int = 512 << 20

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise DefinitionError(f"setting {name}", expected="at least 1", found=getattr(self, name))
        for name in ("chunk_bytes", "record_bytes_max"):
            if getattr(self, name) > _TEXT_BYTES_MAX:
                raise DefinitionError(
                    f"setting {name}", expected=f"at most {_TEXT_BYTES_MAX}", found=getattr(self, name)
                )
