from __future__ import annotations

import signal

import pytest

from silchunk import plan

# Far beyond what a drill takes: only one that hangs meets it.
WATCHDOG_SECONDS = 180


class HangsError(BaseException):
    """Not an Exception, so that nothing on the way takes it for an error of its own."""


@pytest.fixture(autouse=True)
def watchdog():
    """A drill that hangs fails."""

    def bark(number, frame):
        raise HangsError(f"not at its end after {WATCHDOG_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, bark)
    signal.alarm(WATCHDOG_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def short_panels(monkeypatch):
    """So that few points have many panels."""
    monkeypatch.setattr(plan, "PREFERRED_PANEL_ROWS", 64)
    monkeypatch.setattr(plan, "LARGEST_PANEL_ROWS", 64)
