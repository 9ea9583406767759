"""Sketches that events bring along: checked, and brought to the size that a measure keeps.

`hll`, `kll` and `frequent_items` read a family each, `sketches` chooses among them. The bytes come from
outside, so nothing but these modules looks at them before they are checked. A sketch is an operation by
itself: what is looped over are sketches, never the values in them.

Checks are of everything that the format repeats or bounds: lengths, counts, weights against totals, order,
the sums beside registers. What passes is read as the public library reads it. The formats have no checksum,
so other bytes of a sound sketch may be another sound sketch.
"""
