"""The two ways in which given bytes are no sketch for a measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SketchReason = Literal["malformed_sketch", "unfit_sketch"]
HEADER_BYTES = 8  # of every family
HLL_FAMILY, FREQUENT_ITEMS_FAMILY, KLL_FAMILY = 7, 10, 15
_FAMILIES = {
    1: "ALPHA",
    2: "QUICKSELECT",
    3: "COMPACT (a theta sketch)",
    7: "HLL",
    8: "QUANTILES",
    9: "TUPLE",
    10: "FREQUENCY",
    11: "RESERVOIR",
    15: "KLL",
    16: "CPC",
    17: "REQ",
    19: "KLL of the Java library's own",
}


@dataclass
class GivenSketchFault(Exception):
    """Given bytes that a measure cannot take.

    Attributes:
        reason: `malformed_sketch` for bytes that are no whole sketch, `unfit_sketch` for a sketch of another
            family, or a coarser one than the measure keeps.
    """

    reason: SketchReason
    detail: str


def malformed(detail: str) -> GivenSketchFault:
    return GivenSketchFault("malformed_sketch", detail)


def unfit(detail: str) -> GivenSketchFault:
    return GivenSketchFault("unfit_sketch", detail)


def require(holds: bool, detail: str) -> None:
    """Raise the fault of malformed bytes unless the condition holds."""
    if not holds:
        raise malformed(detail)


def check_family(image: bytes, family: int, versions: tuple[int, ...]) -> None:
    """Check the first bytes, which every family has. Raises GivenSketchFault."""
    require(len(image) >= HEADER_BYTES, f"expected {HEADER_BYTES} bytes or more, found {len(image)}")
    if image[2] != family:
        found = _FAMILIES.get(image[2])
        if found is None:
            raise malformed(f"expected family {family} ({_FAMILIES[family]}), found {image[2]}")
        raise unfit(f"expected a sketch of family {_FAMILIES[family]}, found {found}")
    expected = " or ".join(map(str, versions))
    require(image[1] in versions, f"expected serial version {expected}, found {image[1]}")
