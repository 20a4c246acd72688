"""Measurements of ours against baselines, one file each."""
