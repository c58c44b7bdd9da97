"""Reads the files of tables by this process, without Spark."""
