"""Everything that talks to PostgreSQL: one ``.sql`` file per statement, and thin methods of the same names."""
