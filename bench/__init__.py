"""Benchmarks: each prints figures as ratios to a baseline of the same run, because machines are noisy."""
