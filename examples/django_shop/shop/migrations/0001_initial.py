"""The shop's table; the queue's schema is installed by ``samecommit.integrations.django`` after every ``migrate``."""

from django.db import migrations, models


class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True)),
                ("email", models.EmailField(max_length=254)),
                ("amount", models.IntegerField()),
            ],
        ),
    ]
