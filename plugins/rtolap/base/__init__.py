"""The foundation of every room: errors, clock, retry, settings, atomic files, metrics.

Nothing in here knows of cubes, Kafka or ZooKeeper, and nothing in here imports another room.
"""
