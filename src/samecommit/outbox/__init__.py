"""The outbox: an append-only log of events, its windows, and what carries them to their destinations."""
