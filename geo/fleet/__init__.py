"""Everything that one cluster runs, in one application."""
