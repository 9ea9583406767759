"""Functions of ours in the embedded engine, over whole columns: sketches, sets, checksums, variances."""
