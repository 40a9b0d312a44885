"""A Spark cluster on this machine, and a driver for it."""
