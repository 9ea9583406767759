"""How records of segments are divided, so that none grows with partitions or with time.

`pages` holds settled segments, many to a node; `pieces` divides the record of one that is closing; `vectors`
writes what a READY version states by partition beside its data. `metadata.segment_nodes` puts them in place.
"""
