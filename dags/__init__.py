"""Airflow DAGs: names and arrows only."""
