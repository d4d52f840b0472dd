"""Engines of this process alone, for any number of rows."""

from jobs.ground.settings.tree import SparkSettings
from jobs.loop.train.engines import Engines

LOCAL = Engines(10**9, SparkSettings(master="local[2]", driver_memory="1g", shuffle_partitions=2, conf={}))
