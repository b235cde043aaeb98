"""Each rule that keeps a checkpoint safe broken on purpose: the test that shows it must fail."""

from __future__ import annotations

import os
import re

import pytest

from penstock.core.errors import PenstockError
from penstock.storage import files, lease, records, spark_log, versioned
from penstock.storage.records import Records
from penstock.storage.versioned import Checkpoint
from tests.storage import test_lease, test_spark_log, test_versioned


def foreign_folders_are_claimed(patch):
    patch.setattr(Checkpoint, "_refuse_foreign", lambda self: None)


def any_name_may_be_a_page(patch):
    patch.setattr(files, "_PAGE", re.compile(r".*?(\d{8}).*"))


def names_are_matched_at_their_beginning(patch):
    class Loose:
        def fullmatch(self, name):
            return re.match(r"(\d{8,})-\d{5,}-[0-9a-f]{12}-\d+-[0-9a-f]{8}\.arrow", name)

    patch.setattr(files, "_PAGE", Loose())


def links_are_deleted(patch):
    patch.setattr(os.path, "islink", lambda path: False)


def seals_are_not_compared(patch):
    patch.setattr(records, "_seal", lambda size, checksum: b"{}")


def seals_do_not_know_their_name(patch):
    patch.setattr(records, "_seed", lambda name: 0)


def only_offsets_are_compared(patch):
    patch.setattr(spark_log.SparkLog, "_newest_sources", lambda self: [])


def the_time_is_compared(patch):
    patch.setattr(spark_log, "_checksum", lambda name, content: str(content))


def logs_that_are_needed_are_mended(patch):
    real = spark_log.SparkLog.mend
    patch.setattr(spark_log.SparkLog, "mend", lambda self, epoch, noted: real(self, epoch, {}))


def a_ledger_may_be_written_twice(patch):
    def create(self, name, record):
        self.write(name, record)
        return True

    patch.setattr(Records, "create", create)


def the_lease_is_not_checked(patch):
    patch.setattr(lease.Lease, "check", lambda self: None)


def tokens_start_again(patch):
    real = lease.Lease.release

    def release(self):
        real(self)
        self.records.delete(lease._name(self.token))

    patch.setattr(lease.Lease, "release", release)


def a_process_is_known_by_its_number(patch):
    patch.setattr(lease, "_began", lambda pid: "1")


def heartbeats_are_not_watched(patch):
    patch.setattr(lease, "_watch", lambda found, token: None)


V, S, L = test_versioned, test_spark_log, test_lease
MUTANTS = [
    (foreign_folders_are_claimed, V.test_f06_a_folder_that_has_something_in_it_and_no_flow_is_refused),
    (any_name_may_be_a_page, V.test_f06_whatever_has_no_name_that_tasks_give_stays),
    (names_are_matched_at_their_beginning, V.test_f06_whatever_has_no_name_that_tasks_give_stays),
    (seals_are_not_compared, V.test_f04_a_number_that_was_changed_in_a_ledger_or_plan_is_noticed),
    (seals_do_not_know_their_name, V.test_f04_a_record_under_the_name_of_another_is_refused),
    (only_offsets_are_compared, S.test_the_same_offset_of_a_source_of_files_may_be_other_files),
    (
        the_time_is_compared,
        S.test_an_epoch_run_again_has_the_rows_it_had_whatever_the_time_of_the_attempt,
    ),
    (a_ledger_may_be_written_twice, L.test_of_two_drivers_that_pass_the_check_at_the_same_time_one_commits),
    (the_lease_is_not_checked, L.test_who_was_replaced_commits_nothing),
    (tokens_start_again, L.test_a_released_lease_is_free_and_its_token_is_never_used_again),
]


@pytest.mark.parametrize(("mutant", "test"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
def test_a_broken_rule_is_noticed(mutant, test, tmp_path, monkeypatch):
    place = tmp_path / "checkpoint"
    known = {
        "checkpoint": lambda: Checkpoint(str(place)),
        "records": lambda: Records(str(place)),
        "spark": lambda: spark_log.SparkLog(Records(str(place))),
        "root": lambda: place / "spark",
        "tmp_path": lambda: place,
    }
    wanted = {name: known[name]() for name in test.__code__.co_varnames[: test.__code__.co_argcount]}
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, PenstockError)):
        test(**wanted)
    monkeypatch.undo()
    for held in list(lease._HELD.values()):
        held.release()


def test_links_that_are_not_told_apart_are_noticed(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("measured.csv", "00000000-00000-0123456789ab-9-0123abcd.arrow", "join0-00000.json"):
        (elsewhere / name).write_text("mine")
    links_are_deleted(monkeypatch)
    with pytest.raises(AssertionError):
        test_versioned.test_f06_links_in_a_checkpoint_are_neither_followed_nor_deleted(
            Checkpoint(str(tmp_path / "checkpoint")), elsewhere
        )


def test_the_process_and_the_heartbeat_of_a_holder_count(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "PATIENCE", 0.3)
    with monkeypatch.context() as patch:
        a_process_is_known_by_its_number(patch)
        with pytest.raises(versioned.LeaseError):
            test_lease.test_a_process_number_that_is_used_again_is_another_process(Records(str(tmp_path / "a")))
    with monkeypatch.context() as patch:
        heartbeats_are_not_watched(patch)
        with pytest.raises(pytest.fail.Exception):
            test_lease.test_a_holder_on_another_machine_whose_heart_beats_is_alive_whatever_its_clock_says(
                Records(str(tmp_path / "b"))
            )
    for held in list(lease._HELD.values()):
        held.release()


def test_logs_of_spark_that_are_needed_are_noticed_when_mended(tmp_path, monkeypatch):
    spark = spark_log.SparkLog(Records(str(tmp_path)))
    logs_that_are_needed_are_mended(monkeypatch)
    with pytest.raises(AssertionError):
        test_spark_log.test_what_is_needed_or_whole_or_no_log_of_lines_is_never_mended(spark, tmp_path / "spark", "")
