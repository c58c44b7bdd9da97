"""Operating a mesh: verify what the clusters hold, maintain and erase, and check an installation."""
