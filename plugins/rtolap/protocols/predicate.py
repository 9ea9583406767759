"""The filter tree as messages carry it; `rtolap.model.predicate` defines it, as data rooms read it too."""

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
