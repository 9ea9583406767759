"""The filter tree as messages carry it; defined in `rtolap.model.predicate`, because data rooms read it too."""

from rtolap.model.predicate import (
    And,
    Compare,
    CompareOp,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    Scalar,
    columns_of,
)

__all__ = [
    "And",
    "Compare",
    "CompareOp",
    "In",
    "IsNull",
    "Like",
    "Not",
    "Or",
    "Predicate",
    "Scalar",
    "columns_of",
]
