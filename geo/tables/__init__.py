"""Delta tables, how they are committed to, and who may write them. Knows no message."""
