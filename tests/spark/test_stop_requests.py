"""Requests to stop, against a query that does what it is told: when Spark is stopped, and what signals do."""

from __future__ import annotations

import re
import signal
import threading
import time
import traceback

import pytest

from penstock.spark.stopping import GracefulStop, InterruptedEpochError, signals_stop
from penstock.spark.use import CheckpointUse


class Query:
    """A streaming query as far as a stop looks at it."""

    def __init__(self, busy: bool) -> None:
        self.isActive = True
        self.busy = busy
        self.stopped_while_busy: bool | None = None

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": self.busy}

    def stop(self) -> None:
        self.stopped_while_busy = self.busy
        self.isActive = False


def test_a_query_between_two_triggers_is_stopped_at_once():
    stop, query = GracefulStop(), Query(busy=False)
    stop.ask(query)
    assert stop.wait(5)
    assert not query.isActive


def test_a_running_epoch_is_waited_for():
    stop, query = GracefulStop(), Query(busy=True)
    stop.ask(query)
    assert not stop.wait(0.1)
    assert query.isActive
    query.busy = False
    assert stop.wait(5)
    assert query.stopped_while_busy is False


def test_an_epoch_passes_the_gate_unless_a_stop_was_asked_for():
    GracefulStop().gate(Query(busy=True))


def test_an_epoch_at_the_gate_is_held_until_the_query_has_stopped_and_then_counts_as_interrupted():
    stop, query = GracefulStop(), Query(busy=True)
    stop.ask(query)
    with pytest.raises(InterruptedEpochError):
        stop.gate(query)
    assert not query.isActive
    assert stop.wait(5)


def test_a_query_that_is_gone_makes_no_noise(capfd):
    stop, query = GracefulStop(), Query(busy=False)
    query.stop = lambda: 1 // 0
    stop.ask(query)
    assert stop.wait(5)
    assert capfd.readouterr() == ("", "")


def test_spark_takes_the_text_of_an_interruption_for_one_and_can_search_it():
    try:
        raise InterruptedEpochError from None
    except InterruptedEpochError:
        text = traceback.format_exc()
    # What Spark searches for, see StreamExecution.PROXY_ERROR; a stack frame per character is what a match costs.
    assert re.search(
        r"py4j.protocol.Py4JJavaError: An error occurred while calling((.|\n)*)java.lang.InterruptedException", text
    )
    assert len(text) < 1_000


def test_a_lease_that_cannot_be_released_does_not_hide_why_the_query_failed():
    class Full:
        def take_lease(self, in_use):
            return self

        def release(self):
            raise OSError("No space left on device")

    def fail():
        with CheckpointUse(Full()):
            raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause"):
        fail()


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def number(request):
    """A signal whose handler is the default one, as in a fresh program."""
    before = signal.getsignal(request.param)
    signal.signal(request.param, signal.default_int_handler if request.param == signal.SIGINT else signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_the_first_signal_stops_and_the_handler_before_comes_back(number):
    before, asked = signal.getsignal(number), []
    with signals_stop(lambda: asked.append("stop"), lambda: asked.append("cancel")) as received:
        signal.raise_signal(number)
    assert asked == ["stop"]
    assert received == [number]
    assert signal.getsignal(number) is before


def test_the_second_signal_cancels_and_leaves(number):
    asked = []

    def wait():
        with signals_stop(lambda: asked.append("stop"), lambda: asked.append("cancel")):
            signal.raise_signal(number)
            signal.raise_signal(number)
            asked.append("went on")

    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        wait()
    assert asked == ["stop", "cancel"]


@pytest.mark.parametrize("theirs", [lambda number, frame: None, signal.SIG_IGN], ids=["own", "ignored"])
def test_a_signal_that_the_program_handles_or_ignores_stays_as_it_is(number, theirs):
    asked = []
    signal.signal(number, theirs)
    with signals_stop(lambda: asked.append("stop"), lambda: asked.append("cancel")):
        assert signal.getsignal(number) is theirs
        signal.raise_signal(number)
    assert asked == []


def test_pysparks_own_handler_which_cancels_all_jobs_is_replaced_while_waiting():
    def handler(number, frame):
        raise AssertionError

    handler.__module__ = "pyspark.core.context"
    before = signal.signal(signal.SIGINT, handler)
    try:
        with signals_stop(lambda: None, lambda: None):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_than_the_main_one_handles_no_signals():
    before, seen = signal.getsignal(signal.SIGINT), []

    def wait():
        with signals_stop(lambda: None, lambda: None):
            seen.append(signal.getsignal(signal.SIGINT))
            time.sleep(0.01)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert seen == [before]


def stops_at_once(patch):
    patch.setattr(GracefulStop, "_carry_out", lambda self, query: query.stop())


def lets_the_next_epoch_pass(patch):
    patch.setattr(GracefulStop, "gate", lambda self, query: None)


MUTANTS = [
    (stops_at_once, test_a_running_epoch_is_waited_for),
    (
        lets_the_next_epoch_pass,
        test_an_epoch_at_the_gate_is_held_until_the_query_has_stopped_and_then_counts_as_interrupted,
    ),
]


@pytest.mark.parametrize(("mutant", "test"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
def test_a_broken_rule_is_noticed(mutant, test, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test()
