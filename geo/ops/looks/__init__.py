"""Looks of `geo doctor`, a file each. Reads only; of each the part that decides is pure."""
