"""Two engines answer questions about the rows of a table: this process, and Spark."""
