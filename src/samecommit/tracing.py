"""The trace that an emit or an enqueue belongs to, in the form of W3C Trace Context.

Taken from OpenTelemetry where the application uses it. Nobody can be in a span without having imported it, so it is looked
for among what is imported already: an application without it pays one look into a dictionary.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

NAMES = ("traceparent", "tracestate")


def trace_context() -> dict[str, str]:
    """Return ``traceparent`` and, where there is one, ``tracestate`` of the current span; empty outside of a span."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    found = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
    if state := context.trace_state.to_header():
        found["tracestate"] = state
    return found


def traced(names: Mapping[str, str]) -> dict[str, str]:
    """Return what of these is trace context."""
    return {name: names[name] for name in NAMES if name in names}
