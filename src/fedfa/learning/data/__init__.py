"""Data sets, one file each, and the ways to split them among clients."""
