"""One module per driver or framework whose connections can carry a job; each is imported with its first connection."""
