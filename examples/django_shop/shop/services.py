"""Where an order is made: the row and the job in one atomic block."""

from django.db import connection, transaction

from shop.models import Order
from shop.tasks import send_receipt


def create_order(email: str, amount: int) -> Order:
    with transaction.atomic():
        order = Order.objects.create(email=email, amount=amount)
        send_receipt.enqueue(connection, order_id=order.pk)
        if amount <= 0:
            raise ValueError("the amount must be above 0")  # rolls both back
    return order
