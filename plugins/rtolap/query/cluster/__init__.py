"""The cluster as a query service knows it: `view` keeps it, by `remembered`; `topology` is a part of it."""
