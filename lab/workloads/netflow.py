"""Packets as routers see them: streams by time, groups of given sizes, and links that are skewed against each other.

Two links of one network see the same flows, one the requests and the other, with `reverse`, the replies: the source of
the one is the destination of the other, so that they join on the reversed 4-tuple (`REVERSED`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lab.workloads.bmodel import Keys, Seed
from lab.workloads.traces import Layout, Parallel, Trace
from penstock.core.durations import Duration, DurationLike
from penstock.core.errors import ConfigError
from penstock.core.rows import Indices
from penstock.core.time import Times
from penstock.kernels.hashing import hash_keys
from penstock.orders import Arrivals

PACKETS = pa.schema(
    [
        ("srcIP", pa.string()),
        ("srcPort", pa.int32()),
        ("destIP", pa.string()),
        ("destPort", pa.int32()),
        ("len", pa.int32()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
"""The columns of packets."""

REVERSED = {"srcIP": "destIP", "srcPort": "destPort", "destIP": "srcIP", "destPort": "srcPort"}
"""What a reply is joined to its request on, as ``on=`` takes it."""

SMALL_SHARES = {1: 0.01, 2: 0.03, 3: 0.05, 4: 0.07, 5: 0.09}
"""The share of the records that are in groups of one, by the number of the data set."""

_SECOND = 1_000_000
_NETWORK = (202 << 24) + (101 << 16)
"""202.101.0.0: the address of host 0."""
_SERVICES = np.array([80, 443, 53, 22, 25, 8080])
_LENGTHS, _LENGTH_SHARES = np.array([40, 576, 1500], np.int32), [0.5, 0.2, 0.3]
"""Most packets are as short, as long, or as usual as they can be."""


@dataclass(frozen=True, slots=True)
class Packets(Trace):
    """Packets of one link, by time: Poisson arrivals at `rate` a second, of `flows` of which few have most packets.

    `bias` of the packets belong to one half of the flows, and so on in each half. The flows run between `hosts`;
    `network` says which flow runs where. With `reverse`, packets go from the destinations to the sources.

    >>> link = Packets(rate=4000, span="2 s", seed=7)
    >>> link.table().schema.names
    ['srcIP', 'srcPort', 'destIP', 'destPort', 'len', 'ts']
    >>> 7500 < link.rows < 8500
    True
    """

    rate: float
    span: DurationLike = "1 min"
    flows: int = 20_000
    hosts: int = 4_096
    bias: float = 0.7
    reverse: bool = False
    network: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.hosts <= 1 << 20:
            raise ConfigError(f"hosts={self.hosts} must be from 1 to {1 << 20}, the addresses there are.")
        if self.flows < 1:
            raise ConfigError(f"flows={self.flows} must be at least 1: every packet belongs to a flow.")
        self._moments()

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return PACKETS

    def layout(self) -> Layout:
        """Equal stretches of about 65,536 packets."""
        return self._moments().layout()

    def stretch(self, number: int) -> pa.Table:
        """One stretch."""
        moments = self._moments().stretch(number)
        times, flows = moments.column("t").to_numpy().view(np.int64), moments.column("key").to_numpy()
        ends = _ends(flows, self.hosts, self.network)
        if self.reverse:
            ends = Ends(ends.destination, ends.service, ends.source, ends.port)
        return _packets(times, ends, (self.seed, number, 1))

    def _moments(self) -> Parallel:
        return Parallel(self.rate, self.span, self.bias, self.flows, sides=self.network, seed=self.seed)


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """Groups of one record, of about 15 and of about 300: which share of the records is in groups of each kind.

    Groups of about 15 have 10 to 20 records, those of about 300 have 200 to 400, each as likely.

    >>> sizes = GroupSizes(small=0.05, medium=0.2).draw(100_000, seed=7)
    >>> int(sizes.sum()), int((sizes == 1).sum())
    (100000, 5000)
    """

    small: float
    medium: float = 0.2

    def __post_init__(self) -> None:
        if min(self.small, self.medium) < 0 or self.small + self.medium > 1:
            raise ConfigError(
                f"small={self.small} and medium={self.medium} must not be negative, nor add up to more than 1."
            )

    def draw(self, records: int, seed: Seed) -> Indices:
        """The size of each group, small ones first: whole numbers that sum to `records` exactly."""
        random = np.random.default_rng(seed)
        small, medium = round(self.small * records), round(self.medium * records)
        return np.concatenate(
            [
                np.ones(small, np.int64),
                _sizes(random, medium, 10, 20),
                _sizes(random, records - small - medium, 200, 400),
            ]
        )


@dataclass(frozen=True, slots=True)
class DataSet:
    """DS1 to DS5: packets whose sources are groups of given sizes (Table 6-2); the higher, the more are small.

    1, 3, 5, 7 or 9 % of the records are in groups of one, 20 % in groups of about 15, the rest in groups of about 300;
    these are sizes over all `records`, or, with `window`, over each window of that length, where group n of one window
    has the same address as group n of another. Packets come by time, `rate` a second.

    >>> packets = DataSet(3, records=10_000, seed=7).table()
    >>> packets.num_rows, len(packets.column("srcIP").unique())
    (10000, 656)
    """

    number: int
    records: int = 100_000
    rate: float = 4_000
    window: DurationLike | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.number not in SMALL_SHARES:
            raise ConfigError(f"number={self.number} must be from 1 to {len(SMALL_SHARES)}, for DS1 to DS5.")
        if self.records < 1 or not self.rate > 0:
            raise ConfigError(f"records={self.records} must be at least 1, and rate={self.rate} greater than 0.")
        if self.window is not None and _microseconds(self.window, "window") < 1:
            raise ConfigError(f"window={self.window!r} must be longer than 0: window='1 s'.")

    @property
    def sizes(self) -> GroupSizes:
        """How the records are shared out."""
        return GroupSizes(SMALL_SHARES[self.number])

    def table(self) -> pa.Table:
        """All the packets."""
        times = np.arange(self.records) * _SECOND // round(self.rate)
        groups = np.concatenate([self._groups(part, number) for number, part in enumerate(self._windows(times))])
        peers = _ends(groups, 4_096, network=1)
        return _packets(times, peers._replace(source=groups), (self.seed, 1))

    def _windows(self, times: Times) -> list[Times]:
        if self.window is None:
            return [times]
        windows = times // _microseconds(self.window, "window")
        return np.split(times, np.flatnonzero(np.diff(windows)) + 1)

    def _groups(self, times: Times, window: int) -> Keys:
        """A group for each record of a window, in random order."""
        sizes = self.sizes.draw(times.size, (self.seed, window, 0))
        return np.random.default_rng((self.seed, window, 1)).permutation(np.repeat(np.arange(sizes.size), sizes))


class Links(NamedTuple):
    """Three links as their packets arrive."""

    main1: Arrivals
    main2: Arrivals
    control: Arrivals


@dataclass(frozen=True, slots=True)
class SkewedLinks:
    """Two busy links that are in step, and a nearly silent one whose packets come `late` by so long.

    Each link is in order by itself. The second is the reverse of the first, so that they join on `REVERSED`.

    >>> main1, main2, control = SkewedLinks(rate=1000, span="10 s", late="3 s", seed=7).generate()
    >>> main1.rows.num_rows > 9000, main2.rows.num_rows > 9000, control.rows.num_rows < 30
    (True, True, True)
    """

    rate: float = 4_000
    span: DurationLike = "1 min"
    late: DurationLike = "0 s"
    control_rate: float = 1
    flows: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        if _microseconds(self.late, "late") < 0:
            raise ConfigError(f"late={self.late!r} must not be negative: it is how far the control link is behind.")
        if not 0 < self.control_rate < self.rate:
            raise ConfigError(
                f"control_rate={self.control_rate} must be greater than 0 and less than rate={self.rate}: "
                f"the control link is the slow one."
            )

    def generate(self) -> Links:
        """The links, whole; arrivals are in microseconds since the first packet could come."""
        busy = [
            Packets(self.rate, self.span, self.flows, reverse=reverse, seed=seed)
            for reverse, seed in ((False, 3 * self.seed), (True, 3 * self.seed + 1))
        ]
        quiet = Packets(self.control_rate, self.span, self.flows, seed=3 * self.seed + 2)
        main1, main2 = (_arrive(link.table(), 0) for link in busy)
        return Links(main1, main2, _arrive(quiet.table(), _microseconds(self.late, "late")))


class Ends(NamedTuple):
    """Between which hosts, and which of their ports, packets go."""

    source: Keys
    port: Keys
    destination: Keys
    service: Keys


def addresses(hosts: Keys) -> pa.Array:
    """The addresses of hosts, by their numbers.

    >>> addresses(np.array([0, 1, 256])).to_pylist()
    ['202.101.0.0', '202.101.0.1', '202.101.1.0']
    """
    known, which = np.unique(hosts, return_inverse=True)
    texts = [".".join(str((_NETWORK + host) >> shift & 255) for shift in (24, 16, 8, 0)) for host in known.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(which))


def _ends(flows: Keys, hosts: int, network: int) -> Ends:
    """Where each flow runs: the same for whoever sees it."""
    bits = hash_keys([pa.array(flows, pa.int64()), pa.repeat(pa.scalar(network), flows.size)])
    some, others, port, service = ((bits >> np.uint64(shift)).astype(np.int64) & 0xFFFFF for shift in (0, 20, 40, 44))
    return Ends(some % hosts, 1024 + port % 64_512, others % hosts, _SERVICES[service % _SERVICES.size])


def _packets(times: Times, ends: Ends, seed: Seed) -> pa.Table:
    lengths = np.random.default_rng(seed).choice(_LENGTHS, times.size, p=_LENGTH_SHARES)
    source, destination = addresses(ends.source), addresses(ends.destination)
    moments = pa.array(times.view("M8[us]"), PACKETS.field("ts").type)
    ports = ends.port.astype(np.int32), ends.service.astype(np.int32)
    return pa.table([source, ports[0], destination, ports[1], lengths, moments], schema=PACKETS)


def _sizes(random: np.random.Generator, records: int, least: int, most: int) -> Indices:
    """Sizes from `least` to `most` that sum to `records`; the last may be smaller."""
    drawn = random.integers(least, most, records // least + 1, endpoint=True)
    ends = np.minimum(np.cumsum(drawn), records)
    sizes: Indices = np.diff(ends, prepend=0)
    return sizes[sizes > 0]


def _arrive(packets: pa.Table, late: int) -> Arrivals:
    return Arrivals(packets, packets.column("ts").to_numpy().view(np.int64) + late)


def _microseconds(value: DurationLike, argument: str) -> int:
    return Duration.of(value, argument).on("microseconds", argument)
