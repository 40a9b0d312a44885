"""Spark: its session, its JVM, and what its executors need."""
