"""A client in a process of its own ends with its block, and its end is noticed."""

import operator
from multiprocessing.connection import Connection

import pytest

from bench.child import child


def test_a_client_that_ends_early_is_told_of() -> None:
    with pytest.raises(RuntimeError, match="the client failed"), child("the client", operator.not_) as pipe:
        pipe.recv()


def test_what_a_client_sends_arrives() -> None:
    with child("the client", operator.methodcaller("send", 5)) as pipe:
        assert pipe.recv() == 5


def test_a_block_that_fails_waits_for_no_answer() -> None:
    with pytest.raises(ZeroDivisionError), child("the client", Connection.recv):
        raise ZeroDivisionError
