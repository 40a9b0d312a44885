"""7 · Finds the rows nearest to a text or a vector. Starts no JVM."""

from __future__ import annotations

from lakewake.search.run import search
from lakewake.search.where import check_columns, parse_where
from lakewake.search.where_json import parse_where_json

__all__ = ["check_columns", "parse_where", "parse_where_json", "search"]
