"""One module per kind of destination; each imports its client library when its sink connects."""
