"""Reading side by side, on threads that stay."""

from __future__ import annotations

import threading
import time

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


@pytest.mark.parametrize("at_most", [1, 2, 3, 15])
def test_no_more_are_read_at_a_time_than_asked_for(at_most):
    lock, now, most = threading.Lock(), [0], [0]

    def read(number):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.001)
        with lock:
            now[0] -= 1
        return number * number

    assert read_all(read, range(60), at_most=at_most) == [number * number for number in range(60)]
    assert most[0] <= at_most
    assert read_all(read, range(1), at_most=at_most) == [0]


@pytest.mark.parametrize("error", [ValueError, IndexError])
def test_of_a_few_at_a_time_the_first_error_is_raised_and_no_more_is_begun(error):
    begun = []

    def read(number):
        begun.append(number)
        if number in (3, 4):
            raise error(number)
        return number

    with pytest.raises(error, match="3"):
        read_all(read, range(1000), at_most=2)
    assert len(begun) < 1000
