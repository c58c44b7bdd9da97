"""Operating a mesh: verify what the clusters hold, and check an installation."""
