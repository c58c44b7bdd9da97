"""Delta tables: what is in them, which commits made it, and what this program writes. Knows no message, no cluster and no owner."""
