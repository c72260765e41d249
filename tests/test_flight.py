"""Messages to workers: how many panels travel in one, and what becomes of those that fail."""

from __future__ import annotations

import itertools
import os
import threading

import numpy as np
import pytest

from silchunk import ClusterError, InputError
from silchunk.engine import executor, flight, map_panels
from silchunk.inbox import LOOK_AHEAD

THREADS = 2  # of the cluster


@pytest.fixture
def sent(client, monkeypatch):
    """The panels of each message that is sent."""
    messages = []
    submit = client.submit

    def watched(message, panels, **options):
        messages.append([start for start, _ in panels])
        return submit(message, panels, **options)

    monkeypatch.setattr(client, "submit", watched)
    return messages


def run(client, task, count):
    got = []
    panels = [(i, i + 1) for i in range(count)]
    map_panels(task, panels, lambda i, result: got.append(result), where=executor(client))
    return got


def start_of(start, stop):
    return start


def wait_as_long(seconds):
    def task(start, stop):
        threading.Event().wait(seconds)
        return start

    return task


@pytest.mark.cluster
def test_short_panels_travel_together(client, sent):
    assert run(client, start_of, 2000) == list(range(2000))
    assert sorted(itertools.chain.from_iterable(sent)) == list(range(2000))
    # One by one there would be 2000 messages; the first are short, and the last.
    assert len(sent) < 60
    assert all(len(message) == 1 for message in sent[: flight.SENT_AHEAD * THREADS])


@pytest.mark.cluster
def test_all_workers_have_a_part_of_the_last_panels(client, sent):
    run(client, start_of, 500)
    before = 0
    for message in sent:
        left = 500 - before
        assert len(message) <= -(-left // THREADS)
        before += len(message)


@pytest.mark.cluster
@pytest.mark.slow
def test_long_panels_travel_alone(client, sent):
    run(client, wait_as_long(1.5 * flight.MESSAGE_SECONDS), 12)
    assert sent == [[index] for index in range(12)]


@pytest.mark.cluster
def test_large_results_travel_alone(client, sent):
    size = flight.EARLY_BYTES // 8

    def task(start, stop):
        return np.full(size, float(start))

    got = run(client, task, 40)
    assert [float(result[0]) for result in got] == list(range(40))
    assert sent == [[index] for index in range(40)]


@pytest.mark.cluster
def test_no_panel_is_sent_far_ahead_of_one_that_is_awaited(client, sent):
    begun = []

    def consume(index, result):
        begun.append((index, max(map(max, sent))))

    def task(start, stop):  # results of which a few would be too many to be held
        return np.zeros(flight.EARLY_BYTES // 8 // 2)

    panels = [(i, i + 1) for i in range(60)]
    map_panels(task, panels, consume, where=executor(client))
    assert all(last < index + LOOK_AHEAD * THREADS for index, last in begun)


@pytest.mark.cluster
def test_an_error_of_one_panel_is_that_of_its_message(client, sent):
    def task(start, stop):
        if start == 700:
            raise InputError("row 700 is bad")
        return start

    with pytest.raises(InputError, match="row 700 is bad"):
        run(client, task, 2000)
    assert any(700 in message and len(message) > 1 for message in sent)


@pytest.mark.cluster
@pytest.mark.slow
def test_panels_of_a_message_that_is_given_up_are_sent_again_one_by_one(client, sent, monkeypatch):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)

    def task(start, stop):
        if start == 300:
            os._exit(1)
        return start

    with pytest.raises(ClusterError, match=r"over rows \d+ to \d+, killed or out of memory"):
        run(client, task, 600)
    first, *later = [message for message in sent if 300 in message]
    assert len(first) > 1
    assert later
    assert all(message == [300] for message in later)
