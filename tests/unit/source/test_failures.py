"""Errors of a read that Spark did not finish."""

import pytest
from py4j.protocol import Py4JError

from lakewake.errors import TableError
from lakewake.source.failures import reading


class OfADeadJvm(Py4JError):
    """An error of a JVM that can no longer be asked about it."""

    @property
    def java_exception(self) -> object:
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("error", [OfADeadJvm("An error occurred"), ConnectionResetError()])
def test_a_jvm_that_died_is_a_read_error(error: Exception) -> None:
    with pytest.raises(TableError, match="table t cannot be read"), reading("t", KeyError):
        raise error


def test_a_jvm_that_does_not_answer_has_ended() -> None:
    with pytest.raises(TableError, match="Spark's JVM has ended"), reading("t", KeyError):
        raise OfADeadJvm("An error occurred")
