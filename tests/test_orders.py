"""Orders and payments: the same for a seed, disordered as far as is said, and written as whole files only."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock import ConfigError, DurationError
from penstock.core.time import as_times
from penstock.orders import ORDERS, PAYMENTS, START, OrdersAndPayments

SECOND = 1_000_000
HOUR = OrdersAndPayments(orders=50_000, span="1 h", seed=7)


def delays(arrivals):
    return arrivals.arrival - as_times(arrivals.rows.column("ts")).to_numpy()


def test_the_same_seed_gives_the_same_rows_and_another_seed_others():
    again, other = OrdersAndPayments(orders=500, seed=7), OrdersAndPayments(orders=500, seed=8)
    first, second = OrdersAndPayments(orders=500, seed=7).generate(), again.generate()
    assert all(a.rows.equals(b.rows) and (a.arrival == b.arrival).all() for a, b in zip(first, second, strict=True))
    assert not first[0].rows.equals(other.generate()[0].rows)


def test_columns_are_those_that_are_promised():
    orders, payments = HOUR.generate()
    assert orders.rows.schema == ORDERS
    assert payments.rows.schema == PAYMENTS
    assert pc.count_distinct(orders.rows.column("order_id")).as_py() == 50_000
    assert all(table.rows.column(n).null_count == 0 for table in (orders, payments) for n in table.rows.column_names)


def test_a_payment_pays_what_the_order_costs():
    orders, payments = HOUR.generate()
    both = payments.rows.join(orders.rows.drop_columns(["ts"]), "order_id")
    assert both.column("paid").to_pylist() == [float(amount) for amount in both.column("amount").to_pylist()]


def test_most_orders_are_paid_soon_some_late_some_never_some_twice_and_some_clocks_are_off():
    orders, payments = HOUR.generate()
    early = orders.rows.filter(pc.less(as_times(orders.rows.column("ts")), START + 1800 * SECOND))
    both = early.join(payments.rows, "order_id", join_type="left outer", right_suffix="_paid")
    gap = pc.subtract(as_times(both.column("ts_paid")), as_times(both.column("ts")))
    waits = gap.drop_null().to_numpy()
    soon, late = (np.abs(waits) <= 600 * SECOND), (waits > 600 * SECOND)
    assert soon.sum() > 0.8 * early.num_rows
    assert 0.05 < late.sum() / early.num_rows < 0.11
    assert 0.05 < gap.null_count / early.num_rows < 0.11
    assert 0.01 < (both.num_rows - early.num_rows) / early.num_rows < 0.07
    assert (waits < 0).any()


def test_rows_arrive_in_another_order_than_they_happened_but_no_more_than_the_disorder_late():
    for arrivals in HOUR.generate():
        assert (np.diff(arrivals.arrival) >= 0).all()
        assert (np.diff(as_times(arrivals.rows.column("ts")).to_numpy()) < 0).any()
        delay = delays(arrivals)
        usual = delay[delay < 60 * SECOND]
        assert usual.min() >= 0
        assert 19 * SECOND < usual.max() <= 20 * SECOND


def test_a_few_rows_arrive_minutes_late():
    for arrivals in HOUR.generate():
        held_up = (delays(arrivals) >= 180 * SECOND).mean()
        assert 0.0003 < held_up < 0.003


def test_bursts_have_five_times_the_usual_rate():
    orders, _ = HOUR.generate()
    per_stretch = np.bincount((as_times(orders.rows.column("ts")).to_numpy() - START) // (20 * SECOND))
    usual = np.median(per_stretch)
    bursts = per_stretch[per_stretch > 3 * usual]
    assert 0 < bursts.size < per_stretch.size / 2
    assert 4.5 < bursts.mean() / usual < 5.5


def test_files_hold_every_row_once_in_order_of_arrival_and_of_their_modification(tmp_path):
    streams = OrdersAndPayments(orders=2_000, span="5 min", seed=7)
    rows = sum(streams.write(tmp_path, every="10 s"))
    for name, arrivals in zip(("orders", "payments"), streams.generate(), strict=True):
        files = sorted((tmp_path / name).iterdir())
        changed = [file.stat().st_mtime_ns // 1_000_000 for file in files]
        assert len(files) > 20
        assert changed == sorted(set(changed))
        assert pa.concat_tables([pq.read_table(file) for file in files]).equals(arrivals.rows)
        rows -= arrivals.rows.num_rows
    assert rows == 0


def test_a_watched_folder_never_holds_a_part_of_a_file(tmp_path):
    for _ in OrdersAndPayments(orders=2_000, span="5 min", seed=7).write(tmp_path, every="10 s"):
        for file in (tmp_path / "orders").iterdir():
            pq.read_metadata(file)
        assert [path.name for path in sorted(tmp_path.iterdir())] == ["orders", "payments"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"orders": 0}, "orders=0 must be 1 or more."),
        ({"orders": 1, "span": "5 s"}, "span='5 s' is too short for bursts. Write at least '20 s'."),
        ({"orders": 1, "disorder": "-1 s"}, "disorder='-1 s' is negative."),
    ],
)
def test_what_cannot_be_generated_is_refused(arguments, says):
    with pytest.raises(ConfigError, match=says.replace(".", r"\.")):
        OrdersAndPayments(**arguments)


def test_slices_need_a_length(tmp_path):
    with pytest.raises(ConfigError, match="every='0 s' must be positive"):
        OrdersAndPayments(orders=1).write(tmp_path, every="0 s")
    with pytest.raises(DurationError, match="span=5 has no unit"):
        OrdersAndPayments(orders=1, span=5)
