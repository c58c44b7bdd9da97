"""Reads and writes tables by Spark, where this process does not."""
