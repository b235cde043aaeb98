"""Reports: sums over every epoch, and the latest ones by themselves."""

from __future__ import annotations

from penstock.flow.report import KEPT, EpochReport, Report


def test_a_query_that_runs_for_long_keeps_its_sums_and_its_latest_epochs():
    report = Report()
    for number in range(KEPT + 5):
        report = report.after(EpochReport(number, 0.5, rows_in={"a": 2}, late={"a": 1}, rows_out=3))
    assert [epoch.epoch for epoch in report.epochs] == list(range(5, KEPT + 5))
    assert (report.rows_in, report.rows_out, report.late) == (2 * (KEPT + 5), 3 * (KEPT + 5), KEPT + 5)
    assert report.seconds == 0.5 * (KEPT + 5)
    assert str(report).startswith(f"{KEPT + 5} epochs, 2,010 rows in (1,005 late), 3,015 out, 4 rows/s")
