"""The worker process: claimer, executor, completer, heartbeat."""
