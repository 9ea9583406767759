"""Reading cubes: history comes from the object store and real time from receivers, under one snapshot."""
