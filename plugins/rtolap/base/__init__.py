"""The foundation of every room: errors, clock, settings, files, metrics, guarded servers.

Nothing in here knows of cubes, Kafka or ZooKeeper, and nothing in here imports another room.
"""
