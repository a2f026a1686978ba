"""Jobs with keys, and a worker made of statements that moves them."""

from typing import Any

import psycopg
import pytest
from tests.support.engine import Actor
from tests.support.jobs import Jobs
from tests.unique.keys import Keys


@pytest.fixture
def actor(conn: psycopg.Connection[Any], jobs: Jobs) -> Actor:
    return Actor(conn).register()


@pytest.fixture
def keys(jobs: Jobs) -> Keys:
    return Keys(jobs)
