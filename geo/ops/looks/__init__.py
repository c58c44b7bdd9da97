"""What `geo doctor` looks at, a file each. Reads only; of each the part that decides is pure."""
