"""Commands about the history of cubes: builds, batches, sizes."""
