"""The management package that Django looks for."""
