"""Reads e-mail addresses from standard input; each becomes an order and a job, in one transaction for all of them.

SAMECOMMIT_DSN=postgresql://localhost/shop python import_orders.py < addresses.txt
SAMECOMMIT_DSN=postgresql://localhost/shop samecommit worker import_orders:app
"""

import sys

import psycopg

from samecommit import App

app = App()  # SAMECOMMIT_DSN says where


@app.task(queue="mail", max_attempts=5)
def send_receipt(order_id: int, email: str) -> str:
    return f"receipt for order {order_id} to {email}"  # a real one would talk to a mail server here


def main() -> None:
    app.migrate()
    with psycopg.connect(app.dsn) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS orders (id serial PRIMARY KEY, email text NOT NULL)")
        for line in sys.stdin:
            row = conn.execute("INSERT INTO orders (email) VALUES (%s) RETURNING id", (line.strip(),)).fetchone()
            assert row is not None
            send_receipt.enqueue(conn, order_id=row[0], email=line.strip())
    # leaving the block commits: all orders with all their jobs, or nothing


if __name__ == "__main__":
    main()
