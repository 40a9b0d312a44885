"""An index inside the lake: a Hudi table of its own, written by Spark and read without a JVM."""
