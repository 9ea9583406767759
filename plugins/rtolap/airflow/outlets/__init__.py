"""Assets that tasks announce as they succeed: what is told, once, and under which name others wait for it."""
