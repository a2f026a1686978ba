"""Flask with raw psycopg2: one connection for each request, committed at its end.

SAMECOMMIT_DSN=postgresql://localhost/shop flask --app shop run
SAMECOMMIT_DSN=postgresql://localhost/shop samecommit worker shop:app
"""

import psycopg2
from flask import Flask, abort, request

from samecommit import App

app = App()
web = Flask(__name__)


@app.task(queue="mail", max_attempts=5)
def send_receipt(order_id: int) -> str:
    return f"receipt for order {order_id}"


def prepare() -> None:
    app.migrate()
    with psycopg2.connect(app.dsn) as conn, conn.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS shop_order (id serial PRIMARY KEY, email text, amount int)")


@web.post("/orders")
def create_order() -> dict[str, int]:
    email, amount = request.form["email"], int(request.form["amount"])
    conn = psycopg2.connect(app.dsn)
    try:
        with conn, conn.cursor() as cursor:  # commits at its end, rolls back when something is raised
            cursor.execute("INSERT INTO shop_order (email, amount) VALUES (%s, %s) RETURNING id", (email, amount))
            order_id = cursor.fetchone()[0]
            job = send_receipt.enqueue(conn, order_id=order_id)
            if amount <= 0:
                abort(422)
        return {"order": order_id, "job": job.id}
    finally:
        conn.close()
