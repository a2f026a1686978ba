"""The shop's jobs. Importing this makes no connection."""

from samecommit import App
from samecommit.integrations.django import django_dsn

app = App(django_dsn())


@app.task(queue="mail", max_attempts=5)
def send_receipt(order_id: int) -> str:
    from shop.models import Order

    return f"receipt for {Order.objects.get(pk=order_id).email}"
