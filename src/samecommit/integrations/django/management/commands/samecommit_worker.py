"""``manage.py samecommit_worker``: claims and runs jobs until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from argparse import ArgumentParser
from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from samecommit.integrations.django.applications import application_of_a_child, named_application


class Command(BaseCommand):  # type: ignore[misc]
    """Runs a worker of the application that ``SAMECOMMIT_APP`` names."""

    help = "Claim and run jobs until SIGTERM or SIGINT; the second signal stops at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--concurrency", type=int, help="handlers at once")
        parser.add_argument("--queue", action="append", dest="queues", help="work on this queue only; may be repeated")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run until stopped."""
        application = named_application()
        if application is None:
            msg = "SAMECOMMIT_APP is not set: name the application in Django's settings, as in 'shop.tasks:app'"
            raise CommandError(msg)
        application.home = f"{application_of_a_child.__module__}:{application_of_a_child.__name__}"
        config = application.worker_config
        if options["concurrency"]:
            config = replace(config, concurrency=options["concurrency"])
        if options["queues"]:
            config = replace(config, queues=tuple(options["queues"]))
        if asyncio.run(_work(application.worker(config))):
            msg = "every thread hangs in a handler that does not stop: start another worker"
            raise CommandError(msg)


async def _work(worker: Any) -> bool:
    loop, asked = asyncio.get_running_loop(), [0]

    def stop() -> None:
        asked[0] += 1
        worker.stop(now=asked[0] > 1)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await worker.run()
    return bool(worker.is_worn_out)
