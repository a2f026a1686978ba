"""Leaves that join other frameworks; each imports its framework only when it is itself imported."""
