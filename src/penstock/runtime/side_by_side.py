"""Parallel work on several runs of pieces: Arrow, NumPy and DuckDB release the GIL while they compute."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def side_by_side(
    runs: Sequence[Iterable[A]], work: Callable[[A], B], threads: int = 1
) -> Generator[tuple[int, B], None, None]:
    """The results of `work` on each piece, with the number of its run; those of one run are in order.

    At most `threads` runs are active at a time, each with at most one piece in work and one result waiting to be taken.
    An error ends all of them, and is raised once the pieces in work are done.

    >>> sorted(side_by_side([[1, 2], [3]], lambda n: -n, threads=2))
    [(0, -2), (0, -1), (1, -3)]
    """
    if threads < 2 or len(runs) < 2:
        for number, run in enumerate(runs):
            for piece in run:
                yield number, work(piece)
        return
    waiting: queue.SimpleQueue[tuple[int, Iterable[A]]] = queue.SimpleQueue()
    for each in enumerate(runs):
        waiting.put(each)
    crew = _Crew(waiting, work, min(threads, len(runs)))
    try:
        yield from crew.done()
    finally:
        crew.stop()


class _Crew:
    """Threads that take up one run after the other."""

    def __init__(self, waiting: queue.SimpleQueue, work: Callable, count: int) -> None:  # type: ignore[type-arg]
        self._waiting = waiting
        self._work = work
        self._made: queue.SimpleQueue = queue.SimpleQueue()  # type: ignore[type-arg]
        self._room = threading.Semaphore(count)
        self._stopped = False
        self._threads = [threading.Thread(target=self._take_up, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def done(self) -> Iterator:  # type: ignore[type-arg]
        """What they make."""
        left = len(self._threads)
        while left:
            made = self._made.get()
            if made is None:
                left -= 1
            elif isinstance(made, BaseException):
                raise made
            else:
                self._room.release()
                yield made

    def stop(self) -> None:
        """Let no thread begin another piece, and wait until none works."""
        self._stopped = True
        for _ in self._threads:
            self._room.release()
        for thread in self._threads:
            thread.join()

    def _take_up(self) -> None:
        try:
            while not self._stopped:
                number, run = self._waiting.get_nowait()
                for piece in run:
                    made = self._work(piece)
                    del piece
                    self._room.acquire()
                    if self._stopped:
                        return
                    self._made.put((number, made))
                    del made
        except queue.Empty:
            self._made.put(None)
        except BaseException as error:
            self._made.put(error)
