"""The management commands that Django looks for."""
