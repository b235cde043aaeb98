"""The spilling queue: rows leave in the order in which they came, whatever the memory, and the memory holds."""

from __future__ import annotations

import json
import tempfile
from collections import deque
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.errors import BudgetError, ConfigError, StateError
from penstock.core.operator import State
from penstock.core.pages import Page
from penstock.storage.compaction import compact
from penstock.storage.fifo import SpillingQueue
from penstock.storage.files import FilePages
from penstock.storage.memory import MemoryPages
from penstock.storage.versioned import state_from_json, state_to_json
from tests.streams import examples

NUMBERS = pa.schema({"n": pa.int64()})
MIXED = pa.schema({"n": pa.int64(), "text": pa.string(), "flag": pa.bool_(), "list": pa.list_(pa.int8())})


def numbers(first: int, end: int) -> pa.RecordBatch:
    """Eight bytes each."""
    return pa.record_batch({"n": np.arange(first, end)})


def queue_of(memory: int, schema: pa.Schema = NUMBERS, store: MemoryPages | None = None) -> SpillingQueue:
    return SpillingQueue(schema, store or MemoryPages(Budget(1 << 40)), Budget(1 << 40), memory)


def drained(queue: SpillingQueue, rows: int = 7) -> list[int]:
    """Every row, a few at a time."""
    out: list[int] = []
    while (taken := queue.take(rows)).num_rows:
        assert taken.num_rows <= rows
        out += taken.column(0).to_pylist()
    return out


def test_a_short_queue_stays_in_memory():
    queue = queue_of(memory=1600)
    queue.put(numbers(0, 50))
    assert (queue.rows, queue.spilled) == (50, 0)
    assert queue.nbytes == pytest.approx(400, abs=40)
    assert drained(queue) == list(range(50))
    assert queue.memory.held == 0


def test_the_middle_of_a_long_queue_is_in_the_store():
    kept = Budget(1 << 40)
    queue = queue_of(memory=1600, store=MemoryPages(kept))
    queue.put(numbers(0, 1000))
    assert queue.rows == 1000
    assert queue.spilled == kept.held
    assert 6400 <= queue.spilled < 8000
    assert queue.memory.peak <= 1600
    assert drained(queue) == list(range(1000))
    assert (queue.rows, queue.nbytes, queue.spilled, kept.held) == (0, 0, 0, 0)


def test_peeking_leaves_rows_where_they_are():
    queue = queue_of(memory=1600)
    queue.put(numbers(0, 100))
    assert queue.peek(3).column(0).to_pylist() == [0, 1, 2]
    assert queue.take(1).column(0).to_pylist() == [0]
    assert queue.peek(3).column(0).to_pylist() == [1, 2, 3]
    assert queue.rows == 99


def test_an_empty_queue_gives_no_rows_of_its_columns():
    assert queue_of(memory=100).take(5).equals(numbers(0, 0))
    assert queue_of(memory=100).take(0).equals(numbers(0, 0))


def test_a_batch_is_an_eighth_of_the_memory_at_most_however_many_rows_are_wanted():
    queue = queue_of(memory=1600)
    queue.put(numbers(0, 1000))
    sizes = []
    while (taken := queue.take(10**6)).num_rows:
        sizes.append(taken.nbytes)
    assert max(sizes) <= 200
    assert min(sizes[:-1]) >= 100, "nor less than a page, but for the last"


def test_the_memory_is_charged_to_the_budget_until_it_is_closed():
    budget = Budget(1000)
    queue = SpillingQueue(NUMBERS, MemoryPages(Budget(1 << 20)), budget, memory=600)
    queue.put(numbers(0, 500))
    assert budget.held == 600
    queue.close()
    queue.close()
    assert budget.held == 0
    with pytest.raises(BudgetError):
        queue.put(numbers(0, 1))


def test_a_queue_that_the_budget_has_no_room_for_is_refused():
    with pytest.raises(BudgetError, match=r"a queue's head and tail needs 600 B, but 500 B of this task's 500 B"):
        SpillingQueue(NUMBERS, MemoryPages(Budget(0)), Budget(500), memory=600)


def test_a_memory_that_is_none_is_refused():
    with pytest.raises(ConfigError, match=r"memory=15 cannot hold a queue's head and tail, .* Write a size like"):
        queue_of(memory=15)


def test_rows_of_other_columns_are_refused():
    with pytest.raises(ConfigError, match=r"put\(\) got rows of m: int32, but the queue holds n: int64\."):
        queue_of(memory=1600).put(pa.record_batch({"m": pa.array([1], pa.int32())}))


def test_a_row_that_is_too_wide_is_refused_with_what_it_needs_and_nothing_changes():
    queue = queue_of(memory=1600, schema=pa.schema({"s": pa.string()}))
    rows = pa.record_batch({"s": ["a", "x" * 392, "y" * 500]})
    with pytest.raises(BudgetError) as error:
        queue.put(rows)
    assert str(error.value) == (
        "A row of 504 B is too wide for a queue with 1.6 kB of memory, which takes rows of up to a quarter of it. "
        "Give it at least 2.5 kB."
    )
    assert (queue.rows, queue.memory.held) == (0, 0)
    queue.put(rows.slice(0, 2))
    assert [queue.take(9).column(0).to_pylist() for _ in range(2)] == [["a"], ["x" * 392]]


def test_a_slice_of_something_large_does_not_keep_it_alive(tmp_path):
    queue = queue_of(memory=1 << 16)
    before = pa.total_allocated_bytes()
    large = pa.record_batch({"n": pa.array([0] * 1_000_000)})
    queue.put(large.slice(500, 10))
    del large
    assert pa.total_allocated_bytes() - before < 1 << 16


def test_a_million_rows_keep_their_order_and_memory_keeps_its_limit(tmp_path):
    memory = 1 << 20
    queue = SpillingQueue(NUMBERS, FilePages(str(tmp_path)), Budget(memory), memory)
    before, most, put, taken = pa.total_allocated_bytes(), 0, 0, 0
    random = np.random.default_rng(0)
    while taken < 1_000_000:
        if put < 1_000_000:
            end = min(1_000_000, put + int(random.integers(1, 60_000)))
            queue.put(numbers(put, end))
            put = end
        out = queue.take(int(random.integers(1, 20_000))).column(0).to_numpy()
        assert np.array_equal(out, np.arange(taken, taken + out.size))
        taken += out.size
        assert queue.rows == put - taken
        del out
        most = max(most, pa.total_allocated_bytes() - before)
    assert queue.memory.peak <= memory
    assert most <= memory, "as Arrow counts it"
    assert list(tmp_path.iterdir()) == []


def test_many_small_puts_make_few_parts():
    queue = queue_of(memory=1 << 20)
    for n in range(3000):
        queue.put(numbers(n, n + 1))
    assert len(queue._tail) + len(queue._head) < 20
    assert drained(queue, 500) == list(range(3000))


# Saved and taken up


def test_a_queue_is_taken_up_where_it_was_saved(tmp_path):
    queue = SpillingQueue(NUMBERS, FilePages(str(tmp_path)), Budget(1600), memory=1600, port=3)
    queue.put(numbers(0, 300))
    assert queue.take(10).num_rows == 10
    state = queue.state()
    assert {page.kind for page in state.pages} == {3}
    assert queue.memory.held == 0
    saved = state_from_json(json.loads(json.dumps(state_to_json(state))))
    again = SpillingQueue(NUMBERS, FilePages(str(tmp_path)), Budget(1600), memory=1600, port=3, state=saved)
    again.put(numbers(300, 310))
    assert again.rows == 300
    assert drained(again) == list(range(10, 310))
    last = SpillingQueue(NUMBERS, FilePages(str(tmp_path)), Budget(1600), memory=1600, port=3, state=saved)
    assert drained(last) == list(range(10, 300)), "an epoch may be run again: what an earlier one wrote stays"


def test_a_queue_may_be_taken_up_with_less_memory():
    store = MemoryPages(Budget(1 << 40))
    queue = queue_of(memory=16_000, store=store)
    queue.put(numbers(0, 5000))
    less = SpillingQueue(NUMBERS, store, Budget(800), memory=800, state=queue.state())
    assert less.nbytes == 40_000
    assert drained(less) == list(range(5000))
    assert less.memory.peak <= 800
    assert less.nbytes == 0


def test_short_epochs_do_not_leave_a_page_each():
    store, state = MemoryPages(Budget(1 << 40)), State()
    for epoch in range(200):
        queue = SpillingQueue(NUMBERS, store, Budget(16_000), memory=16_000, state=state)
        queue.put(numbers(10 * epoch, 10 * epoch + 10))
        state = queue.state()
    assert len(state.pages) <= 2 * 16_000 // 1000 + 1
    assert drained(SpillingQueue(NUMBERS, store, Budget(16_000), memory=16_000, state=state)) == list(range(2000))


def test_compaction_leaves_a_queue_alone():
    store = MemoryPages(Budget(1 << 40))
    queue = queue_of(memory=1600, store=store)
    queue.put(numbers(0, 1000))
    pages = queue.state().pages
    assert len(pages) > 10
    assert compact(pages, store, Budget(1 << 30)) == pages


def test_pages_of_other_ports_are_left_alone():
    other = Page("p", 1, 0, 5, 40, 0, 9, 0, 9)
    queue = SpillingQueue(NUMBERS, MemoryPages(Budget(0)), Budget(1600), 1600, port=0, state=State((other,)))
    assert queue.rows == 0


def test_pages_that_are_not_what_was_saved_are_refused():
    queue = queue_of(memory=1600)
    queue.put(numbers(0, 300))
    state = queue.state()
    for pages, meta in ((state.pages[1:], state.meta), (state.pages, {})):
        with pytest.raises(StateError, match=r"A queue was saved with \d+ rows, but its pages hold \d+: they were"):
            SpillingQueue(NUMBERS, MemoryPages(Budget(0)), Budget(1600), 1600, state=State(pages, meta))


# Against a deque


@dataclass(frozen=True)
class Put:
    """Rows by what their texts and lists measure; no text where it is None."""

    widths: tuple[tuple[int | None, int], ...]


@dataclass(frozen=True)
class Take:
    rows: int


@dataclass(frozen=True)
class Peek:
    rows: int


@dataclass(frozen=True)
class Save:
    memory: int


memories = st.sampled_from([700, 2_000, 30_000])
widths = st.tuples(st.one_of(st.none(), st.integers(0, 3), st.integers(0, 60)), st.sampled_from([0, 0, 1, 20]))
steps = st.one_of(
    st.builds(Put, st.lists(widths, max_size=12).map(tuple)),
    st.builds(lambda width, times: Put((width,) * times), widths, st.integers(0, 300)),
    st.builds(Take, st.integers(0, 9)),
    st.builds(Take, st.integers(0, 400)),
    st.builds(Peek, st.integers(0, 40)),
    st.builds(Save, memories),
)


def mixed(first: int, widths: tuple[tuple[int | None, int], ...]) -> list[dict]:
    texts = [None if text is None else "x" * text for text, _ in widths]
    return [
        {"n": first + n, "text": texts[n], "flag": [True, False, None][n % 3], "list": [1] * size}
        for n, (_, size) in enumerate(widths)
    ]


@given(memories, st.lists(steps, max_size=14))
@example(700, [Put(((60, 20),) * 40), Save(30_000), Put(((0, 0),) * 200), Save(700), Take(400), Peek(3)])
@example(
    700,
    [Put(((None, 0),) * 4 + ((None, 20), (21, 20), (60, 0)) + ((None, 0),) * 5), Save(30_000), Take(8)],
)
@examples(0.2)
def test_a_queue_is_a_deque_within_its_memory(memory, steps):
    kept = Budget(1 << 40)
    store = MemoryPages(kept)
    queue, model, count = queue_of(memory, MIXED, store), deque(), 0
    for step in [*steps, Save(memory)]:
        if isinstance(step, Put):
            rows = mixed(count, step.widths)
            queue.put(pa.RecordBatch.from_pylist(rows, MIXED))
            model.extend(rows)
            count += len(rows)
        elif isinstance(step, Save):
            queue = SpillingQueue(MIXED, store, Budget(step.memory), step.memory, state=queue.state())
        else:
            out = (queue.take if isinstance(step, Take) else queue.peek)(step.rows).to_pylist()
            assert out == [model[place] for place in range(len(out))]
            assert len(out) <= step.rows
            assert out or not model or not step.rows
            for _ in out if isinstance(step, Take) else ():
                model.popleft()
        assert queue.memory.peak <= queue.memory.limit
        assert queue.rows == len(model)
        assert queue.spilled <= min(kept.held, queue.nbytes)
        assert sum(part.rows.nbytes for part in (*queue._head, *queue._tail)) <= queue.memory.held
    assert drained(queue) == [row["n"] for row in model]
    assert (queue.nbytes, queue.memory.held, kept.held) == (0, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 200)), max_size=12))
@examples(0.02)
def test_files_serve_as_well_as_memory(steps):
    with tempfile.TemporaryDirectory() as folder:
        queue = SpillingQueue(NUMBERS, FilePages(folder), Budget(900), 900)
        put, out = 0, []
        for more, wanted in steps:
            queue.put(numbers(put, put + more))
            put += more
            out += queue.take(wanted).column(0).to_pylist()
        assert out + drained(queue) == list(range(put))
