"""Reads tables and writes files by Spark, where this process does not."""
