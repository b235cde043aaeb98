"""Events of Nexmark's online auction – people, auctions, bids – as Parquet files for the benchmark and the tests.

The proportions are those that Nexmark publishes. Of every 50 events one is a new person, three are new auctions and 46
are bids. An auction is by a hot seller in 3 of 4 cases, a bid is for a hot auction in 1 of 2, by a hot bidder in 3 of 4
and through a hot channel in 1 of 2. The hot seller and the hot auction are the first, the hot bidder is the second, of
the last hundred. The others are any of the 1,000 people and 100 auctions that are active, or of the next ten.

Events are 100 µs apart. Nexmark rounds times to milliseconds; here no two events have the same time, so that "the last
bid" is always one bid. A tenth of the events arrive later than they happened, by at most `Events.disorder_us`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Numbers = npt.NDArray[np.int64]

PEOPLE, AUCTIONS, BIDS = 1, 3, 46
TOTAL = PEOPLE + AUCTIONS + BIDS
PERSON, AUCTION, BID = 0, 1, 2
"""Values of ``event_type``."""

FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT_AUCTION, HOT_BIDDER, HOT_SELLER, HOT_CHANNEL = 2, 4, 4, 2
"""One in so many is not hot."""
HOT_EVERY = 100
"""Of so many people, or auctions, one is hot."""
ACTIVE_PEOPLE, ACTIVE_AUCTIONS, LEAD = 1000, 100, 10

START_US = 1_700_000_000_000_000
STEP_US = 100
LATE_SHARE = 0.1
LONGEST_AUCTION_US = 2 * ACTIVE_AUCTIONS * TOTAL // AUCTIONS * STEP_US

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000

_TIME = pa.timestamp("us", tz="UTC")
_PERSON = pa.struct(
    {"id": pa.int64()}
    | dict.fromkeys(("name", "emailAddress", "creditCard", "city", "state"), pa.string())
    | {"dateTime": _TIME, "extra": pa.string()}
)
_AUCTION = pa.struct(
    {"id": pa.int64(), "itemName": pa.string(), "description": pa.string(), "initialBid": pa.int64()}
    | {"reserve": pa.int64(), "dateTime": _TIME, "expires": _TIME, "seller": pa.int64(), "category": pa.int64()}
    | {"extra": pa.string()}
)
_BID = pa.struct(
    {"auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64(), "channel": pa.string(), "url": pa.string()}
    | {"dateTime": _TIME, "extra": pa.string()}
)
SCHEMA = pa.schema({"event_type": pa.int32(), "person": _PERSON, "auction": _AUCTION, "bid": _BID, "dateTime": _TIME})


@dataclass(frozen=True, slots=True)
class Events:
    """Which events: the same fields always give the same rows in the same order of arrival.

    >>> few = Events(epoch_rows=100, epochs=2)
    >>> [epoch.num_rows for epoch in few.arriving()]
    [100, 100]
    """

    epoch_rows: int = 500_000
    epochs: int = 6
    disorder_us: int = 3_000_000
    """By how much an event may arrive after a later one."""
    pause_us: int = 0
    """For how long nothing happens after every thousand events: so few events are in many windows."""
    seed: int = 0

    @property
    def rows(self) -> int:
        """All events."""
        return self.epoch_rows * self.epochs

    def arriving(self) -> Iterator[pa.Table]:
        """The events of one epoch after the other, as they arrive."""
        waiting, arrivals = SCHEMA.empty_table(), np.zeros(0, np.int64)
        sent: list[pa.Table] = []
        for epoch in range(self.epochs):
            rng = np.random.default_rng((self.seed, epoch))
            numbers = np.arange(epoch * self.epoch_rows, (epoch + 1) * self.epoch_rows)
            times = self._times(numbers)
            waiting = pa.concat_tables([waiting, made(numbers, times, rng)])
            arrivals = np.concatenate([arrivals, times + self._delays(rng)])
            order = np.argsort(arrivals, kind="stable")
            last = epoch == self.epochs - 1
            ready = order.size if last else int(np.searchsorted(arrivals[order], self._times(numbers[-1] + 1)))
            sent.append(waiting.take(order[:ready]))
            waiting, arrivals = waiting.take(order[ready:]), arrivals[order[ready:]]
            while sum(table.num_rows for table in sent) >= self.epoch_rows:
                whole = pa.concat_tables(sent)
                yield whole.slice(0, self.epoch_rows).combine_chunks()
                sent = [whole.slice(self.epoch_rows)]

    def _times(self, numbers: Numbers) -> Numbers:
        """When the events of these numbers happen, in microseconds."""
        return START_US + numbers * STEP_US + numbers // 1000 * self.pause_us

    def _delays(self, rng: np.random.Generator) -> Numbers:
        """How much later than it happened each event of an epoch arrives, in microseconds."""
        delays = rng.integers(0, max(self.disorder_us, 1), self.epoch_rows)
        return np.where(rng.random(self.epoch_rows) < LATE_SHARE, delays, 0)

    def write(self, folder: Path, files_per_epoch: int = 2) -> None:
        """Write Parquet files whose order of modification, by which streams read them, is that of arrival."""
        folder.mkdir(parents=True)
        for epoch, events in enumerate(self.arriving()):
            cuts = np.linspace(0, events.num_rows, files_per_epoch + 1).astype(int)
            for part, (start, end) in enumerate(pairwise(cuts)):
                number = epoch * files_per_epoch + part
                path = folder / f"{number:04}.parquet"
                pq.write_table(events.slice(start, end - start), path)
                os.utime(path, (START_US // 10**6 + number,) * 2)


def made(numbers: Numbers, times: Numbers, rng: np.random.Generator) -> pa.Table:
    """The events of these numbers at these times."""
    place = numbers % TOTAL
    kind = np.select([place < PEOPLE, place < PEOPLE + AUCTIONS], [PERSON, AUCTION], BID)
    rounds = numbers // TOTAL
    last_person = rounds * PEOPLE + np.minimum(place, PEOPLE - 1)
    last_auction = rounds * AUCTIONS + np.clip(place - PEOPLE, -1, AUCTIONS - 1)
    makers = (_people, _auctions, _bids)
    structs = []
    for which, make in enumerate(makers):
        rows = np.flatnonzero(kind == which)
        values = make(times[rows], last_person[rows], last_auction[rows], rng)
        structs.append(_spread(values, rows, numbers.size))
    return pa.table([pa.array(kind, pa.int32()), *structs, _instants(times)], schema=SCHEMA)


def _spread(values: pa.StructArray, rows: Numbers, count: int) -> pa.Array:
    """Values at the rows that they belong to, and null elsewhere."""
    places = np.zeros(count, np.int64)
    places[rows] = np.arange(rows.size)
    empty = np.ones(count, bool)
    empty[rows] = False
    return values.take(pa.array(places, mask=empty))


def _people(times: Numbers, last_person: Numbers, _: Numbers, rng: np.random.Generator) -> pa.StructArray:
    count = times.size
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    words = [_one_of(names, count, rng), _emails(count, rng), _cards(count, rng)]
    words += [_one_of(CITIES, count, rng), _one_of(STATES, count, rng)]
    size = np.sum([_lengths(column) for column in words], axis=0) + 8
    return _struct(_PERSON, [pa.array(last_person + FIRST_ID), *words, _instants(times), _extra(200 - size, rng)])


def _auctions(times: Numbers, last_person: Numbers, last_auction: Numbers, rng: np.random.Generator) -> pa.StructArray:
    count = times.size
    hot = last_person // HOT_EVERY * HOT_EVERY
    seller = np.where(rng.integers(0, HOT_SELLER, count) > 0, hot, _any_person(last_person, rng))
    initial = _prices(count, rng)
    name, description = _texts(rng.integers(3, 20, count), rng), _texts(rng.integers(3, 100, count), rng)
    size = 48 + _lengths(name) + _lengths(description)
    columns = [
        pa.array(last_auction + FIRST_ID),
        name,
        description,
        pa.array(initial),
        pa.array(initial + _prices(count, rng)),
        _instants(times),
        _instants(times + rng.integers(1000, LONGEST_AUCTION_US, count)),
        pa.array(seller + FIRST_ID),
        pa.array(FIRST_CATEGORY + rng.integers(0, CATEGORIES, count)),
        _extra(500 - size, rng),
    ]
    return _struct(_AUCTION, columns)


def _bids(times: Numbers, last_person: Numbers, last_auction: Numbers, rng: np.random.Generator) -> pa.StructArray:
    count = times.size
    oldest = np.maximum(last_auction - ACTIVE_AUCTIONS, 0)
    other = oldest + (rng.random(count) * (last_auction - oldest + 1 + LEAD)).astype(np.int64)
    auction = np.where(rng.integers(0, HOT_AUCTION, count) > 0, last_auction // HOT_EVERY * HOT_EVERY, other)
    hot = last_person // HOT_EVERY * HOT_EVERY + 1
    bidder = np.where(rng.integers(0, HOT_BIDDER, count) > 0, hot, _any_person(last_person, rng))
    channels, urls = _channels()
    is_hot = rng.integers(0, HOT_CHANNEL, count) > 0
    chosen = np.where(is_hot, rng.integers(0, len(HOT_CHANNELS), count), rng.integers(0, CHANNELS, count))
    through = pa.array(np.where(is_hot, chosen, chosen + len(HOT_CHANNELS)))
    columns = [
        pa.array(auction + FIRST_ID),
        pa.array(bidder + FIRST_ID),
        pa.array(_prices(count, rng)),
        channels.take(through),
        urls.take(through),
        _instants(times),
        _extra(np.full(count, 100 - 32), rng),
    ]
    return _struct(_BID, columns)


def _any_person(last_person: Numbers, rng: np.random.Generator) -> Numbers:
    """One of the people who are active, or are about to come."""
    active = np.minimum(last_person + 1, ACTIVE_PEOPLE)
    chosen: Numbers = last_person + 1 - active + (rng.random(last_person.size) * (active + LEAD)).astype(np.int64)
    return chosen


def _prices(count: int, rng: np.random.Generator) -> Numbers:
    """From a dollar to a million, in cents; each power of ten is as frequent as the others."""
    cents: Numbers = np.rint(10 ** (rng.random(count) * 6) * 100).astype(np.int64)
    return cents


def _channels() -> tuple[pa.Array, pa.Array]:
    """Every channel's name and URL, the hot ones first: the same ones for every seed."""
    rng = np.random.default_rng(7)
    count = len(HOT_CHANNELS) + CHANNELS
    folders = [_texts(rng.integers(3, 6, count), rng, b"_") for _ in range(3)]
    base = pc.binary_join_element_wise("https://www.nexmark.com", *folders, "item.htm?query=1", "/")
    named = np.arange(count) >= len(HOT_CHANNELS)
    shown = pa.array(named & (rng.integers(0, 10, count) > 0))
    numbers = pa.array(rng.permutation(2**31 // CHANNELS * np.arange(count))).cast(pa.string())
    urls = pc.if_else(shown, pc.binary_join_element_wise(base, numbers, "&channel_id="), base)
    return pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]), urls


def _emails(count: int, rng: np.random.Generator) -> pa.Array:
    user, host = (_texts(rng.integers(3, most, count), rng, b"_") for most in (7, 5))
    return pc.binary_join_element_wise(pc.binary_join_element_wise(user, host, "@"), "com", ".")


def _cards(count: int, rng: np.random.Generator) -> pa.Array:
    """Four groups of four digits."""
    digits = rng.integers(ord("0"), ord("9") + 1, (count, 20), np.uint8)
    digits[:, 4::5] = ord(" ")
    return _strings(np.ascontiguousarray(digits[:, :19]).reshape(-1), np.full(count, 19))


def _texts(lengths: Numbers, rng: np.random.Generator, space: bytes = b" ") -> pa.Array:
    """Letters, of which every thirteenth is a space; the first and the last of a text are none."""
    letters = rng.integers(ord("a"), ord("z") + 1, int(lengths.sum()), np.uint8)
    ends = np.cumsum(lengths)
    gaps = rng.integers(0, 13, letters.size, np.uint8) == 0
    gaps[ends - 1] = gaps[ends - lengths] = False
    letters[gaps] = space[0]
    return _strings(letters, lengths)


def _extra(average: Numbers, rng: np.random.Generator) -> pa.Array:
    """Letters that bring events to their average size: each text is up to a fifth shorter or longer than that."""
    spread = np.rint(average * 0.2).astype(np.int64)
    lengths = np.maximum(average - spread + (rng.random(average.size) * 2 * spread).astype(np.int64), 0)
    return _strings(rng.integers(ord("a"), ord("z") + 1, int(lengths.sum()), np.uint8), lengths)


def _strings(letters: npt.NDArray[np.uint8], lengths: Numbers) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.StringArray.from_buffers(lengths.size, pa.py_buffer(offsets), pa.py_buffer(letters))


def _lengths(texts: pa.Array) -> Numbers:
    lengths: Numbers = pc.binary_length(texts).to_numpy().astype(np.int64)
    return lengths


def _one_of(words: Sequence[str], count: int, rng: np.random.Generator) -> pa.Array:
    return pa.array(words).take(pa.array(rng.integers(0, len(words), count)))


def _instants(us: Numbers) -> pa.Array:
    return pa.array(us).cast(_TIME)


def _struct(kind: pa.StructType, columns: Sequence[pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(columns, fields=list(kind))
