"""PIP-33 in each cluster: markers, snapshots, and the controller that joins them for a topic."""
