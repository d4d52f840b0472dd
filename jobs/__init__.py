"""Jobs and all wiring: settings, tables, sources, Spark session, the command line."""
