"""The journal beside a model of it that is a few dicts."""
