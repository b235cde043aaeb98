"""Checkpoints: what was committed comes back, what is another's is refused, what is needed is never deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.errors import CheckpointError, StateError
from penstock.core.operator import State
from penstock.core.pages import Page
from penstock.core.progress import Track
from penstock.storage.files import FilePages
from penstock.storage.versioned import Checkpoint, Ledger, Plan, next_ledger, state_from_json, state_to_json

FLOW = {"sources": {"orders": {"time": "ts"}}, "operators": {"join0": {"how": "left", "on": [["id", "id"]]}}}
TRACK = Track(bound=-5, max_time=9, heard=77, recent=((3, 9), (1, 9)))


def a_page(name: str, marks: str | None = None) -> Page:
    return Page(
        name, kind=1, begin=2, end=5, nbytes=80, min_time=-(2**63), max_time=7, min_hash=0, max_hash=2**64 - 1,
        floor=3, marks=marks,
    )  # fmt: skip


def ledger_of(epoch: int, *pages: Page) -> Ledger:
    return Ledger(
        epoch=epoch,
        tracks={"orders": TRACK},
        ports={"join0": (4, -(2**63))},
        states={"join0": (State(pages, meta={"seed": 1}), State())},
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(str(tmp_path / "checkpoint"))


def folder(checkpoint: Checkpoint) -> Path:
    return Path(checkpoint.uri)


def contents(root: Path) -> dict[Path, bytes]:
    """Every file, by path; links are followed."""
    paths = [Path(at, name) for at, _, names in os.walk(root, followlinks=True) for name in names]
    return {path: path.read_bytes() for path in paths if path.exists()}


def test_a_new_checkpoint_is_empty(checkpoint):
    assert checkpoint.latest() == Ledger()
    assert checkpoint.planned(0) is None
    assert checkpoint.vacuum() == (0, 0)


def test_the_latest_ledger_comes_back_as_it_was_committed(checkpoint):
    checkpoint.commit(ledger_of(0))
    checkpoint.commit(last := ledger_of(1, a_page("p", marks="m")))
    assert Checkpoint(checkpoint.uri).latest() == last
    assert next_ledger(last).epoch == 2


def test_a_plan_comes_back_as_it_was_made_until_the_epoch_after_next(checkpoint):
    plans = [Plan(epoch=n, now=123, shards=4, tracks={"orders": TRACK}, static=True, end=n == 2) for n in range(3)]
    for plan in plans:
        checkpoint.plan(plan)
    assert [Checkpoint(checkpoint.uri).planned(n) for n in range(3)] == [None, plans[1], plans[2]]


def test_state_comes_back_from_json(checkpoint):
    state = State((a_page("p"), a_page("q", marks="m")), meta={"n": 1})
    assert state_from_json(state_to_json(state)) == state


@pytest.mark.parametrize("count", [0, 1, 256, 257, 1000])
def test_what_a_shard_has_become_comes_back_however_many_pages_it_has(checkpoint, count):
    state = State(tuple(a_page(f"p{n}") for n in range(count)), meta={"n": 1, "quoted": 'a "name"'})
    checkpoint.stage("7-a", "join0", 0, {"rows": 1, "waits": None}, state)
    (record,) = checkpoint.staged("7-a", "join0", shards=1)
    assert state_from_json(record.pop("state")) == state
    assert record == {"rows": 1, "waits": None}


def test_epochs_are_ordered_as_numbers(checkpoint):
    for epoch in (9, 10):
        checkpoint.commit(ledger_of(epoch))
    assert checkpoint.latest().epoch == 10


# Whose it is


def test_what_a_flow_prepares_is_prepared_once_a_start_and_before_the_folder_is_claimed(checkpoint):
    def fail() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        checkpoint.claim(FLOW, fail)
    assert contents(folder(checkpoint)) == {}
    prepared: list[bool] = []
    for _ in range(2):
        Checkpoint(checkpoint.uri).claim(FLOW, lambda: prepared.append((folder(checkpoint) / "flow.json").exists()))
    assert prepared == [False, True]
    with pytest.raises(CheckpointError, match="belongs to a flow that differs"):
        checkpoint.claim({}, fail)


def test_a_flow_may_claim_its_own_checkpoint_again(checkpoint):
    checkpoint.claim(FLOW)
    Checkpoint(checkpoint.uri).claim(FLOW)


def test_plans_of_joins_are_those_of_the_flow_that_claimed_the_folder(tmp_path):
    uri = str(tmp_path / "new")
    assert Checkpoint.plans(uri) is None
    assert not (tmp_path / "new").exists(), "asking makes nothing"
    Checkpoint(uri).claim({"sources": {}, "operators": {}, "plans": {"star": "(li o) s"}})
    assert Checkpoint.plans(uri) == {"star": "(li o) s"}
    Checkpoint(f"{uri}er").claim({"sources": {}, "operators": {}})
    assert Checkpoint.plans(f"{uri}er") == {}


def test_a_changed_flow_is_refused_with_the_difference_and_nothing_is_touched(checkpoint):
    checkpoint.claim(FLOW)
    checkpoint.commit(ledger_of(0))
    before = contents(folder(checkpoint))
    changed = {"sources": {}, "operators": {"join0": {"how": "inner", "on": [["id", "id"]]}}}
    with pytest.raises(CheckpointError) as error:
        Checkpoint(checkpoint.uri).claim(changed)
    assert str(error.value).splitlines() == [
        f"Checkpoint {checkpoint.uri} belongs to a flow that differs from this one:",
        "  operators.join0.how: was left, is now inner",
        "  sources.orders: was {'time': 'ts'}, is now nothing",
        "Its state was left untouched. Undo the change, or start with a new checkpoint folder.",
    ]
    assert contents(folder(checkpoint)) == before


def test_state_of_another_format_is_refused(checkpoint, monkeypatch):
    checkpoint.claim(FLOW)
    monkeypatch.setattr("penstock.storage.versioned.FORMAT", 99)
    with pytest.raises(CheckpointError, match="format: was 2, is now 99"):
        Checkpoint(checkpoint.uri).claim(FLOW)


def test_a_checkpoint_of_the_format_before_which_had_no_seals_is_refused_with_the_difference(checkpoint):
    (folder(checkpoint) / "flow.json").write_text(json.dumps({"format": 1, **FLOW}))
    (folder(checkpoint) / "ledger").mkdir()
    (folder(checkpoint) / "ledger" / "00000000.json").write_text(json.dumps(ledger_of(0).to_json()))
    before = contents(folder(checkpoint))
    with pytest.raises(CheckpointError, match="format: was 1, is now 2"):
        checkpoint.claim(FLOW)
    with pytest.raises(
        CheckpointError, match=r"has state format 1, but this version of penstock reads 2\. Nothing was"
    ):
        checkpoint.vacuum()
    assert contents(folder(checkpoint)) == before


def test_ledgers_without_the_flow_they_belong_to_are_refused(checkpoint):
    checkpoint.commit(ledger_of(0))
    with pytest.raises(StateError, match=r"flow\.json is missing"):
        checkpoint.claim(FLOW)


# What is no checkpoint: nothing there may be touched


def test_f06_a_folder_that_has_something_in_it_and_no_flow_is_refused(checkpoint):
    """It was claimed, and whatever lay under state/ was deleted: here the measurements of a user."""
    mine = folder(checkpoint) / "state" / "mine"
    mine.mkdir(parents=True)
    (mine / "measured.csv").write_text("1,2")
    (mine / "flow.json").write_text("{}")
    before = contents(folder(checkpoint))
    with pytest.raises(CheckpointError) as error:
        checkpoint.claim(FLOW)
    assert str(error.value) == (
        f"checkpoint='{checkpoint.uri}' is not a checkpoint and not empty: it has state, but no flow.json. "
        f"A flow deletes old state in its checkpoint, so nothing else may be there; nothing was touched. "
        f"Write a folder that is empty or does not exist, such as checkpoint='{checkpoint.uri}/checkpoint'."
    )
    assert contents(folder(checkpoint)) == before


def test_f06_of_many_files_that_are_not_ours_the_error_names_some(checkpoint):
    for name in "abcde":
        (folder(checkpoint) / name).touch()
    with pytest.raises(CheckpointError, match=r"it has a, b, c and 2 more, but no flow\.json"):
        checkpoint.claim(FLOW)


def test_a_folder_is_still_claimed_after_a_crash_in_the_middle_of_claiming_it(checkpoint):
    (folder(checkpoint) / "flow.json.0123456789ab.draft").write_text('{"for')
    checkpoint.claim(FLOW)


def a_used(checkpoint: Checkpoint) -> None:
    """The checkpoint after its second epoch, which left nothing of the first."""
    checkpoint.claim(FLOW)
    for epoch in range(2):
        checkpoint.commit(ledger_of(epoch, a_page(put(checkpoint, 1))))


FOREIGN = [
    "state/join0/measured.csv",
    "state/join0/flow.json",
    "state/join0/00000000.arrow",
    "state/join0/00000000-00000-0123456789ab-9-0123abcd.arrow.bak",
    "state/join0/00000000-measured-0123456789ab-9-0123abcd.arrow",
    "state/join0/x00000000-00000-0123456789ab-9-0123abcd.arrow",
    "state/join0/deeper/00000000-00000-0123456789ab-9-0123abcd.arrow",
    "state/join0/00000000-00000-0123456789ab-9-0123ABCD.arrow",
    "state/join0/.notes.draft",
    "state/other/00000000-00000-0123456789ab-9-0123abcd.arrow",
    "state/other/flow.json",
    "state/other/state/join0/00000000-00000-0123456789ab-9-0123abcd.arrow",
    "staged/notes.txt",
    "staged/00000000/join0-00000.json",
    "staged/00000000-0123abcd/notes.txt",
    "staged/00000000-0123abcd/other0-00000.json",
    "ledger/0.json",
    "ledger/notes.json",
    "plan/0.json",
    "measured.csv",
]


def test_f06_whatever_has_no_name_that_tasks_give_stays(checkpoint):
    a_used(checkpoint)
    for name in FOREIGN:
        path = folder(checkpoint) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    checkpoint.stage("00000000-0123abcd", "join0", 0, {}, State())
    kept = checkpoint.latest().names("join0")
    stale = put(checkpoint, 0)
    draft = folder(checkpoint) / "state" / "join0" / ".00000001-00000-0123456789ab.draft"
    draft.touch()
    checkpoint.claim(FLOW)
    checkpoint.drop("join0", [Path(name).name for name in FOREIGN if name.startswith("state/join0")])
    checkpoint.forget("00000000", ["join0"])
    (folder(checkpoint) / "ledger" / "00000001.json.0123456789ab.draft").touch()
    assert checkpoint.vacuum()[0] == 2  # the stale page and the draft
    assert not list((folder(checkpoint) / "ledger").glob("*.draft"))
    assert [name for name in FOREIGN if not (folder(checkpoint) / name).exists()] == []
    assert kept <= there(checkpoint)
    assert stale not in there(checkpoint)
    assert not draft.exists()
    assert not (folder(checkpoint) / "staged" / "00000000-0123abcd" / "join0-00000.json").exists()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Files of somebody else, one with a name as ours have."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    for name in ("measured.csv", "00000000-00000-0123456789ab-9-0123abcd.arrow", "00000000.json", "join0-00000.json"):
        (place / name).write_text("mine")
    return place


@pytest.mark.parametrize("name", ["state", "state/join0", "ledger", "plan", "staged", "flow.json"])
def test_f06_a_part_of_a_checkpoint_that_is_a_link_is_refused(checkpoint, elsewhere, name):
    a_used(checkpoint)
    link = folder(checkpoint) / name
    if link.exists():
        link.rename(elsewhere / "was")
    link.symlink_to(elsewhere / "was" if (elsewhere / "was").exists() else elsewhere)
    before = contents(elsewhere)
    for use in (lambda: checkpoint.claim(FLOW), checkpoint.vacuum):
        with pytest.raises(CheckpointError, match=rf"{link} is a symbolic link.*nothing was touched.*Put the whole"):
            use()
    assert contents(elsewhere) == before


def test_f06_links_in_a_checkpoint_are_neither_followed_nor_deleted(checkpoint, elsewhere):
    a_used(checkpoint)
    page = "00000000-00000-0123456789ab-9-0123abcd.arrow"
    links = [
        ("state/join0", page, elsewhere / page),
        ("state/join0", "folder", elsewhere),
        ("staged", "00000000-0123abcd", elsewhere),
        ("ledger", "00000000.json.0123456789ab.draft", elsewhere / "measured.csv"),
    ]
    for inside, name, target in links:
        (folder(checkpoint) / inside).mkdir(exist_ok=True)
        (folder(checkpoint) / inside / name).symlink_to(target)
    before = contents(elsewhere)
    checkpoint.claim(FLOW)
    checkpoint.vacuum()
    checkpoint.drop("join0", [page])
    checkpoint.forget("00000000-0123abcd", ["join0"])
    checkpoint.commit(ledger_of(2))
    assert contents(elsewhere) == before
    assert all(os.path.islink(folder(checkpoint) / inside / name) for inside, name, _ in links)


def test_a_checkpoint_may_itself_be_a_link(checkpoint, tmp_path):
    (tmp_path / "link").symlink_to(folder(checkpoint), target_is_directory=True)
    through = Checkpoint(str(tmp_path / "link"))
    through.claim(FLOW)
    through.commit(ledger_of(0))
    assert checkpoint.latest().epoch == 0


# What is broken


@pytest.mark.slow
def test_f04_any_changed_byte_of_a_record_is_an_error_with_its_path(checkpoint):
    checkpoint.claim(FLOW)
    checkpoint.plan(Plan(epoch=0, now=123, shards=4, tracks={"orders": TRACK}))
    checkpoint.stage("00000000-0123abcd", "join0", 0, {"rows": 1}, State((a_page("p"),)))
    checkpoint.commit(ledger_of(0, a_page("p", marks="m")))
    uses = {
        "flow.json": lambda: checkpoint.claim(FLOW),
        "plan/00000000.json": lambda: checkpoint.planned(0),
        "staged/00000000-0123abcd/join0-00000.json": lambda: checkpoint.staged("00000000-0123abcd", "join0", 1),
        "ledger/00000000.json": checkpoint.latest,
    }
    for name, use in uses.items():
        path = folder(checkpoint) / name
        whole = path.read_bytes()
        changed = [whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :] for n in range(len(whole))]
        for content in [*changed, *(whole[:n] for n in range(len(whole))), whole + b" ", whole + whole]:
            path.write_bytes(content)
            with pytest.raises(StateError, match=rf"State file {path} is not what was written: .*Restore the file"):
                use()
        path.write_bytes(whole)
        use()


def test_f04_a_number_that_was_changed_in_a_ledger_or_plan_is_noticed(checkpoint):
    """A page that ended 60 rows sooner, and a bound that was 100 further, gave wrong results and no error."""
    checkpoint.commit(ledger_of(0, a_page("p")))
    checkpoint.plan(Plan(epoch=1, now=123, shards=4, tracks={"orders": TRACK}))
    for name, old, new in (("ledger/00000000.json", b'"end":5', b'"end":4'), ("plan/00000001.json", b"-5", b"95")):
        path = folder(checkpoint) / name
        assert old in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(StateError, match="its checksum differs"):
        checkpoint.latest()
    with pytest.raises(StateError, match="its checksum differs"):
        checkpoint.planned(1)


def test_f04_a_record_under_the_name_of_another_is_refused(checkpoint):
    for epoch in range(2):
        checkpoint.commit(ledger_of(epoch))
    older, newer = (folder(checkpoint) / "ledger" / f"{epoch:08d}.json" for epoch in range(2))
    newer.write_bytes(older.read_bytes())
    with pytest.raises(StateError, match="its checksum differs"):
        checkpoint.latest()


@pytest.mark.parametrize("content", ["", "{", '{"epoch": 0, "tra', "not json"])
def test_a_broken_ledger_is_an_error_with_its_path_and_never_an_empty_state(checkpoint, content):
    checkpoint.commit(ledger_of(0))
    path = folder(checkpoint) / "ledger" / "00000000.json"
    path.write_text(content)
    with pytest.raises(StateError, match=rf"State file {path} is not what was written: .*Restore the file"):
        checkpoint.latest()


@pytest.mark.parametrize("content", ["{}", "[]", '{"epoch": 0}'])
def test_a_ledger_that_is_json_but_no_ledger_is_broken_too(checkpoint, content):
    checkpoint.commit(ledger_of(0))
    path = folder(checkpoint) / "ledger" / "00000000.json"
    path.write_text(content)
    with pytest.raises(StateError, match=rf"State file {path} is not what was written"):
        checkpoint.latest()


def spark_has_read(checkpoint: Checkpoint) -> None:
    """Spark's own record of what the source gave, which a checkpoint cannot go on without."""
    offsets = folder(checkpoint) / "spark" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("v1\n{}\n-")
    (offsets.parent / "metadata").write_text('{"id":"1"}')


def test_a_page_the_ledger_names_that_is_gone_is_found_before_anything_runs(checkpoint):
    spark_has_read(checkpoint)
    with pytest.raises(StateError, match=r"state/join0/gone is missing.*Restore the file from a backup"):
        checkpoint.check(ledger_of(0, a_page("gone")))


def test_spark_s_record_of_what_was_read_must_be_there_too(checkpoint):
    checkpoint.check(Ledger())
    with pytest.raises(StateError, match=r"spark/offsets is missing"):
        checkpoint.check(ledger_of(0))


def test_a_ledger_that_must_have_been_there_is_missed(checkpoint):
    """Epoch 2 was planned, so epoch 1 was committed: its ledger gone, going on from 0 would lose what it did."""
    checkpoint.commit(ledger_of(0))
    checkpoint.plan(Plan(epoch=2, now=0, shards=1, tracks={}))
    with pytest.raises(StateError, match=r"ledger/00000001\.json is missing"):
        checkpoint.latest()


def test_a_shard_that_did_not_report_stops_the_epoch(checkpoint):
    checkpoint.stage("7-a", "join0", 0, {"rows": 1}, State())
    with pytest.raises(StateError, match=r"Shard 1 of join0 did not report for 7-a: .* the epoch was not committed"):
        checkpoint.staged("7-a", "join0", shards=2)


def test_what_a_second_attempt_of_a_task_says_replaces_what_the_first_said(checkpoint):
    for attempt in (1, 2):
        checkpoint.stage("00000007-0123abcd", "join0", 0, {"attempt": attempt}, State())
    found = checkpoint.staged("00000007-0123abcd", "join0", shards=1)
    assert found == [{"attempt": 2, "state": {"meta": {}, "pages": []}}]
    checkpoint.forget("00000007-0123abcd", ["join0"])
    checkpoint.forget("00000009-0123abcd", ["join0"])
    with pytest.raises(StateError, match="did not report"):
        checkpoint.staged("00000007-0123abcd", "join0", shards=1)
    assert not list((folder(checkpoint) / "staged").iterdir())


def test_of_several_runs_of_a_task_the_one_that_counts_is_read(checkpoint):
    attempt = "00000007-0123abcd"
    for name in ("0123456789ab", "ba9876543210"):
        checkpoint.stage(attempt, "join0", 0, {"run": name}, State(), name)
    for name in ("0123456789ab", "ba9876543210"):
        (found,) = checkpoint.staged(attempt, "join0", 1, {0: name})
        assert found["run"] == name
    with pytest.raises(StateError, match="did not report"):
        checkpoint.staged(attempt, "join0", 1, {})
    checkpoint.forget(attempt, ["join0"])
    assert not list((folder(checkpoint) / "staged").iterdir())


def test_a_draft_that_a_crash_left_behind_is_not_a_ledger(checkpoint):
    checkpoint.commit(ledger_of(0))
    (folder(checkpoint) / "ledger" / "00000001.json.draft").write_text('{"epo')
    assert checkpoint.latest().epoch == 0


# What may go


def put(checkpoint: Checkpoint, number: int) -> str:
    store = FilePages(checkpoint.pages("join0"), prefix=f"{number:08d}-00000")
    return store.put(pa.record_batch({"n": pa.array([number])}))


def there(checkpoint: Checkpoint) -> set[str]:
    return {path.name for path in (folder(checkpoint) / "state" / "join0").iterdir()}


def test_vacuum_deletes_only_what_no_kept_ledger_names(checkpoint):
    oldest, older, marks, newest, orphan = (put(checkpoint, number) for number in (0, 1, 1, 2, 1))
    checkpoint.commit(ledger_of(0, a_page(oldest)))
    checkpoint.commit(ledger_of(1, a_page(older, marks=marks)))
    checkpoint.commit(ledger_of(2, a_page(newest)))
    checkpoint.stage("00000002-0123abcd", "join0", 0, {}, State())
    sizes = [(folder(checkpoint) / "state" / "join0" / name).stat().st_size for name in (oldest, orphan)]
    assert checkpoint.vacuum() == (2, sum(sizes))
    assert there(checkpoint) == {older, marks, newest}
    assert not list((folder(checkpoint) / "staged").iterdir())
    spark_has_read(checkpoint)
    checkpoint.check(checkpoint.latest())


def test_vacuum_leaves_what_the_next_epoch_is_writing(checkpoint):
    kept = put(checkpoint, 0)
    checkpoint.commit(ledger_of(0, a_page(kept)))
    writing = FilePages(checkpoint.pages("join0"), prefix="00000001-00000")
    done = FilePages(checkpoint.pages("join0"), prefix="00000000-00000")
    fresh, stale = (store.put(pa.record_batch({"n": [1]})) for store in (writing, done))
    checkpoint.stage("00000001-0123abcd", "join0", 0, {}, State())
    assert checkpoint.vacuum()[0] == 1
    assert there(checkpoint) == {kept, fresh}
    assert stale not in there(checkpoint)
    assert list((folder(checkpoint) / "staged").iterdir())


def test_vacuum_stops_at_a_broken_ledger_before_it_deletes_anything(checkpoint):
    kept = put(checkpoint, 0)
    checkpoint.commit(ledger_of(0, a_page(kept)))
    (folder(checkpoint) / "ledger" / "00000000.json").write_text("{")
    with pytest.raises(StateError, match="is not what was written"):
        checkpoint.vacuum()
    assert there(checkpoint) == {kept}


def test_only_the_last_two_versions_are_kept(checkpoint):
    for epoch in range(4):
        checkpoint.commit(ledger_of(epoch))
    assert sorted(path.name for path in (folder(checkpoint) / "ledger").iterdir()) == ["00000002.json", "00000003.json"]


def test_dropping_a_page_that_is_gone_already_is_fine(checkpoint):
    name = put(checkpoint, 0)
    checkpoint.drop("join0", [name, name, "never-was"])
    assert there(checkpoint) == set()


# Pages that are kept elsewhere


def put_elsewhere(checkpoint: Checkpoint, place: Path, epoch: int) -> str:
    store = FilePages(checkpoint.pages("join0"), f"{epoch:08d}-00000", elsewhere={"shed": str(place)})
    return store.put(pa.record_batch({"n": pa.array([epoch])}), "shed")


def test_pages_elsewhere_are_checked_and_dropped_by_their_whole_name(checkpoint, tmp_path):
    name = put_elsewhere(checkpoint, tmp_path / "shed", 0)
    assert Path(name).exists()
    assert there(checkpoint) == set()
    checkpoint.commit(ledger_of(0, a_page(name)))
    spark_has_read(checkpoint)
    checkpoint.check(checkpoint.latest())
    checkpoint.drop("join0", [name, name])
    assert not Path(name).exists()
    with pytest.raises(StateError, match=Path(name).name):
        checkpoint.check(checkpoint.latest())


def test_vacuum_sweeps_what_attempts_left_elsewhere_and_nothing_of_other_checkpoints(checkpoint, tmp_path):
    kept, orphan, writing = (put_elsewhere(checkpoint, tmp_path / "shed", epoch) for epoch in (1, 0, 2))
    other = put_elsewhere(Checkpoint(str(tmp_path / "other")), tmp_path / "shed", 0)
    checkpoint.commit(ledger_of(1, a_page(kept)))
    assert checkpoint.vacuum()[0] == 1
    assert [Path(name).exists() for name in (kept, orphan, writing, other)] == [True, False, True, True]


@pytest.mark.parametrize("below", ["", "/checkpoint"])
def test_a_checkpoint_that_cannot_be_a_folder_is_refused(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match=r"^checkpoint='.*file.*' cannot be created: .*Write a path where"):
        Checkpoint(f"{tmp_path}/file{below}")
    assert (tmp_path / "file").read_text() == "mine"
