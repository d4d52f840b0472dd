"""Jobs for operators: status with alarms, checks of the installation, caches, metrics, broken locks."""
