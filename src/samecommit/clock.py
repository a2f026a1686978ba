"""Local time for local waits only; when a job may run is the database's business."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Monotonic: TypeAlias = Callable[[], float]
monotonic: Monotonic = time.monotonic
