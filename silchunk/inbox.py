"""Where the results of panels arrive, from several threads, to be consumed by one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Consume = Callable[[int, Any], None]

# Panels begun ahead of the first one awaited, for each task at once, where results are in order.
LOOK_AHEAD = 4
# Those who wait look this often whether the job has been given up.
LOOK_SECONDS = 0.2


class Inbox:
    """Passes results on; if in order, one that comes early waits for those before it.

    Early ones are few: no panel is begun while too many, `LOOK_AHEAD` for each task at once, lie
    between it and the first one that is still awaited.
    """

    def __init__(
        self, consume: Consume, total: int, advance: Callable[[int, int], None], ordered: bool
    ) -> None:
        self.consume = consume
        self.total = total
        self.advance = advance
        self.ordered = ordered
        self.waiting: dict[int, Any] = {}
        self.next = 0
        self.done = 0
        self.failed = False
        self.changed = threading.Condition()

    def put(self, index: int, result: Any) -> None:
        """Take the result of a panel."""
        with self.changed:
            if self.ordered:
                self.waiting[index] = result
                while self.next in self.waiting:
                    self.consume(self.next, self.waiting.pop(self.next))
                    self.next += 1
            else:
                self.consume(index, result)
            self.done += 1
            self.advance(self.done, self.total)
            self.changed.notify_all()

    def has_room(self, index: int, ahead: int) -> bool:
        """Whether a panel may be begun: it is less than so many ahead of the first awaited."""
        return not self.ordered or index < self.next + ahead

    def wait_for_room(self, index: int, ahead: int, given_up: Callable[[], bool]) -> None:
        """Wait until a panel may be begun, or the job has failed or been ``given_up``."""
        with self.changed:
            # Nobody tells of a job that is given up: a signal handler may not take the lock.
            while not (self.failed or given_up() or self.has_room(index, ahead)):
                self.changed.wait(LOOK_SECONDS)

    def fail(self) -> None:
        """Wake those who wait: the job has failed."""
        with self.changed:
            self.failed = True
            self.changed.notify_all()
