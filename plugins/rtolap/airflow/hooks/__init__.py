"""Connections of Airflow, and the clients that they lead to."""
