"""Recorded traffic of three wire formats: read through `read_reply`, compared with a plain reading.

``python -m tests.wire PATH`` reads all of it; `tests.wire.test_recordings` some of it, where the
recordings are at hand.  None of them is part of the project.
"""
