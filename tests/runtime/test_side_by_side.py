"""Runs of pieces in several threads: every piece once, in order within its run; errors end all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from penstock.runtime.side_by_side import side_by_side


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_piece_comes_once_and_those_of_a_run_in_order(threads):
    runs = [range(n * 100, n * 100 + n * 7) for n in range(4)]
    made = list(side_by_side(runs, lambda piece: piece + 1, threads))
    for number, run in enumerate(runs):
        assert [piece for of, piece in made if of == number] == [piece + 1 for piece in run]


def test_no_more_pieces_are_made_than_are_taken_and_two_for_each_thread():
    begun: list[int] = []

    def pieces() -> Iterator[int]:
        for piece in range(50):
            begun.append(piece)
            yield piece

    making = side_by_side([pieces(), pieces()], lambda piece: piece, 2)
    for taken in range(1, 10):
        next(making)
        time.sleep(0.02)
        assert len(begun) <= taken + 4
    making.close()


def test_an_error_ends_all_and_is_raised_when_nobody_works_any_more():
    working = threading.Event()

    def work(piece: int) -> int:
        if piece == 3:
            raise ValueError("no")
        working.set()
        time.sleep(0.05)
        working.clear()
        return piece

    with pytest.raises(ValueError, match="no"):
        list(side_by_side([[1] * 50, [3]], work, 2))
    assert not working.is_set()


def test_who_stops_taking_waits_until_nobody_works_any_more():
    before = threading.active_count()
    making = side_by_side([[1] * 50, [2] * 50], lambda piece: piece, 2)
    next(making)
    making.close()
    assert threading.active_count() == before
