"""Benchmarks: each row against a raw baseline that is measured in the same run, alternating."""
