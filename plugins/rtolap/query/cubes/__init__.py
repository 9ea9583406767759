"""Reading cubes: history out of the object store, real time from receivers, under one snapshot."""
