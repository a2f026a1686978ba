"""Measures an installation: rates, latencies, costs, and what a pinned horizon does, beside the floor in plain SQL.

Everything runs in a scratch schema that is dropped at the end, on the user's own database or on an embedded one. Each
measurement is a function in a module of its own that adds rows to a `Report`; processes under test are real children.
"""
