"""Makes a process that a handler forks, as ``multiprocessing`` does, one like others: it ends when it is told to."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection


def let_forks_go(numbers: Collection[signal.Signals], begin: Callable[[], object] = lambda: None) -> None:
    """Give these signals their usual effect in whatever this process forks from now on, and call ``begin`` there.

    They are held back around the fork: one that came before that effect is there would be lost.
    """
    if not hasattr(os, "register_at_fork"):
        return

    def hold() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def begin_anew() -> None:
        begin()
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=begin_anew)
