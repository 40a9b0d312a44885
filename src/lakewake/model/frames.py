"""Values as DataFrames of pandas, if it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakewake.errors import SetupError


def data_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    """The rows as a DataFrame, with these columns even if there is no row.

    Raises:
        SetupError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise SetupError(
            "pandas is not installed", hint="run `pip install pandas`, or use `as_dict()`"
        ) from error
    return pandas.DataFrame(list(rows), columns=list(columns))
