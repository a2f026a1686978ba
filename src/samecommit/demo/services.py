"""The two services that the leads meet on their way, started for one run and given to its processes by environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from samecommit.demo.child import Child
from samecommit.demo.crm_client import CrmClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Where they listen; ``env`` is what a process of the run needs beside its own environment."""

    crm: CrmClient
    env: Mapping[str, str]


def start_services(
    stack: ExitStack, *, dsn: str, crm_file: Path, model_args: Sequence[object] = (), crm_args: Sequence[object] = ()
) -> Services:
    """Start both stubs, to be ended by ``stack``; a real ``OPENAI_BASE_URL`` in the environment is used instead.

    Raises:
        ChildError: one of them did not start.
    """
    env = {"SAMECOMMIT_DSN": dsn}
    if not os.environ.get("OPENAI_BASE_URL"):
        model = stack.enter_context(Child("samecommit.demo.model_stub", *model_args))
        # named as what it is, and not given a key that is meant for somebody else
        env |= {"OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_MODEL": "stub", "OPENAI_API_KEY": "none"}
    crm = stack.enter_context(Child("samecommit.demo.crm_stub", crm_file, *crm_args))
    return Services(crm=CrmClient(base_url=crm.url), env={**env, "DEMO_CRM_URL": crm.url})
