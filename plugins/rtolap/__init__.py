"""rtolap: real-time OLAP on Kafka, orchestrated by Airflow, built by Spark."""

__version__ = "0.1.0"
