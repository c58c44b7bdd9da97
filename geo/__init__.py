"""delta-geo: active-active geo-replication for topics that live in Delta Lake tables."""
