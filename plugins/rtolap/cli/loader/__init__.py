"""`rtolap loader` runs and manages loaders. `commands` has the commands about jobs and mounts the others;
`dead_letters` lists what a loader has refused, loads it after all, or gives it up."""
