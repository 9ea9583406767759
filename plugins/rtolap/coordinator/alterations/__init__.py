"""Changes of running cubes: `alter` (of which kind one is), `settings` (in place), `revisions` (a cube that
follows)."""
