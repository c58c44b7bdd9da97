"""Who works on a table: by this process, or by Spark."""
