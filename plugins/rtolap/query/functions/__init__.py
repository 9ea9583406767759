"""The functions that SQL may call: `table` has a row for each, `names` the lists and the error for others."""
