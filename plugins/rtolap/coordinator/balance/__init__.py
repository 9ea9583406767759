"""Balance of replica sets by load: `loads` (the load of each partition, out of heartbeats), `balancing`
(which partitions move, pure), `recommendation` (both for one cube, with the figures that people see)."""
