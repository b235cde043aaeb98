"""Where an epoch runs."""

from __future__ import annotations

from penstock.spark.place import Placement


def test_an_epoch_runs_where_the_driver_is_until_tasks_are_predicted_to_be_faster():
    placement = Placement()
    assert placement.choose(10**9) == ("driver", "no epoch has been measured yet")
    placement.learn("driver", 10**6, seconds=4)
    assert placement.choose(10**6) == ("driver", "too little has been measured there yet")
    placement.learn("driver", 10**6, seconds=0.1)
    assert placement.choose(10**6)[0] == "driver"
    place, why = placement.choose(10**8)
    assert (place, why) == ("tasks", "predicted to take 6.13 s there, 10.00 s in the driver")


def test_the_first_epoch_at_a_place_is_not_believed():
    placement = Placement()
    for _ in range(2):
        placement.learn("driver", 10**8, seconds=10)
    placement.learn("tasks", 10**8, seconds=90)
    assert placement.choose(10**8) == ("tasks", "too little has been measured there yet")
    placement.learn("tasks", 10**8, seconds=2)
    assert placement.choose(10**8) == ("tasks", "predicted to take 2.00 s there, 10.00 s in the driver")
    placement.learn("tasks", 10**8, seconds=100)
    assert placement.choose(10**8)[0] == "driver"


def test_what_did_not_fit_goes_to_tasks_and_so_does_what_is_almost_as_large():
    placement = Placement()
    placement.did_not_fit()
    for _ in range(2):
        placement.learn("tasks", 1000, seconds=1)
    assert placement.choose(900) == ("tasks", "900 bytes of files do not fit the memory of one task")
    assert placement.choose(700)[0] == "driver"


def test_what_tasks_cannot_do_alone_goes_to_spark():
    placement = Placement(blobs=False)
    placement.did_not_fit()
    placement.learn("spark", 1000, seconds=1)
    assert placement.choose(1000)[0] == placement.elsewhere == placement.at_most("tasks") == "spark"
    assert Placement(why_not="a DataFrame").choose(5) == ("spark", "a DataFrame")
    assert Placement(why_not="a DataFrame").at_most("driver") == "spark"


def test_what_spark_aggregates_itself_runs_there_first_and_is_tried_where_the_driver_is_if_it_takes_long():
    quick, slow = (Placement(blobs=False, unit="rows", first="elsewhere") for _ in range(2))
    for placement, seconds in ((quick, 0.28), (slow, 1.0)):
        assert placement.choose(0) == ("spark", "no epoch has been measured yet")
        placement.learn("spark", 10**6, seconds=3)
        assert placement.choose(10**6)[0] == "spark"
        placement.learn("spark", 10**6, seconds)
    assert quick.choose(10**6)[0] == "spark"
    assert slow.choose(10**6) == ("driver", "predicted to take 0.50 s there, 1.00 s in tasks")
    for seconds in (5.0, 1.5):
        slow.learn("driver", 10**6, seconds)
    assert slow.choose(10**6) == ("spark", "predicted to take 1.00 s there, 1.50 s in the driver")


def test_an_epoch_without_rows_teaches_nothing():
    placement = Placement()
    placement.learn("driver", 0, seconds=3.0)
    assert placement.choose(5)[1] == "no epoch has been measured yet"


def test_tasks_are_taken_to_save_only_what_one_core_did_alone():
    placement = Placement(tasks=2)
    for _ in range(2):
        placement.learn("driver", 10**8, seconds=10, alone=0.0)
    assert placement.choose(10**8) == ("driver", "predicted to take 10.00 s there, 10.25 s in tasks")
    placement.learn("driver", 10**8, seconds=10, alone=8.5)
    assert placement.choose(10**8) == ("tasks", "predicted to take 6.75 s there, 10.00 s in the driver")


def test_tasks_are_not_tried_for_a_small_gain():
    placement = Placement(tasks=2)
    for _ in range(2):
        placement.learn("driver", 10**8, seconds=10, alone=1.7)
    small = "predicted to take 10.00 s there, 9.55 s in tasks, where none has run"
    assert placement.choose(10**8) == ("driver", small)
    for _ in range(2):
        placement.learn("tasks", 10**8, seconds=9.55)
    assert placement.choose(10**8)[0] == "tasks"


def test_what_does_not_fit_at_once_goes_piece_by_piece_if_tasks_were_measured_and_are_predicted_to_take_longer():
    placement = Placement(pieces=True, tasks=2)
    placement.did_not_fit()
    told = []
    for _ in range(4):
        placement.learn("tasks", 1000, seconds=0.4)
        told.append(placement.choose(1000)[0])
    assert told == ["tasks"] * 3 + ["pieces"]
    assert placement.choose(1000) == ("pieces", "1,000 bytes of files do not fit the memory of one task")
    for seconds in (2.0, 0.3):
        placement.learn("pieces", 1000, seconds)
        assert placement.choose(1000)[0] == "pieces"
    placement.learn("pieces", 1000, seconds=1)
    assert placement.choose(1000)[0] == "tasks"


def test_large_epochs_stay_in_tasks_that_share_the_work():
    placement = Placement(pieces=True, tasks=2)
    placement.did_not_fit()
    for _ in range(5):
        placement.learn("tasks", 10**6, seconds=4)
    assert placement.choose(10**6)[0] == "tasks"


def test_pieces_that_did_not_fit_are_not_tried_again():
    placement = Placement(pieces=True)
    assert placement.at_most("pieces") == "pieces"
    placement.did_not_fit("pieces")
    assert placement.at_most("pieces") == placement.elsewhere == "tasks"
