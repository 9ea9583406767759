"""Sets of values that one relation of a statement has, as filters on the reads of its cubes."""
