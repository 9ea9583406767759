"""Receivers, replica sets and coordinators, as the records of the cluster name them (`membership`)."""
