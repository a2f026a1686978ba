"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    email = models.EmailField()
    amount = models.IntegerField()

    def __str__(self) -> str:
        return f"{self.email}: {self.amount}"
