"""No models: Django tells of the end of ``migrate`` only to applications that have this module."""
