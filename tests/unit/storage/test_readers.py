"""Reading side by side, on threads that stay."""

from __future__ import annotations

import threading

import pytest

from pydelta.storage.readers import read_all


def test_results_come_in_the_order_of_the_items_from_several_threads_that_stay():
    meet = threading.Barrier(4)

    def read(number):
        meet.wait(30)
        return number, threading.get_ident()

    first, second = read_all(read, range(4)), read_all(read, range(4))
    assert [number for number, _ in first] == [0, 1, 2, 3]
    assert len({thread for _, thread in first}) == 4
    assert {thread for _, thread in first} <= {thread.ident for thread in threading.enumerate()}
    assert len({thread for _, thread in first + second}) <= 16


def test_nothing_and_one_thing_take_no_thread():
    assert read_all(str, []) == []
    assert read_all(lambda _: threading.get_ident(), [1]) == [threading.get_ident()]


def test_reads_within_reads_do_not_wait_for_each_other():
    assert read_all(lambda row: read_all(lambda item: row * item, range(5)), range(40)) == [
        [row * item for item in range(5)] for row in range(40)
    ]


def test_the_first_error_is_raised():
    def read(number):
        if number in (3, 5):
            raise ValueError(number)
        return number

    with pytest.raises(ValueError, match="3"):
        read_all(read, range(8))
