"""The same input the common way: write the row, and tell an in-memory broker about it.

Three processes as in many systems: an importer that commits and publishes (in either order), a broker that forgets a
message when it hands it out, and workers that look the row up and do all three steps. Nothing here is made worse than
it commonly is: the worker retries, the broker survives the kill, the importer is started again and skips what is there.
"""
