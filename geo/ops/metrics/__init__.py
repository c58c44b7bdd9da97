"""Metrics of regions and links in the formats that Prometheus reads. Nothing here judges: what is wrong `geo.ops.status` says."""
