"""Tests on a real Airflow."""
