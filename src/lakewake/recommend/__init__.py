"""8 · Rows that were found → an answer in words that names them. Searches through a callable."""

from __future__ import annotations

from lakewake.recommend.run import recommend, recommend_stream

__all__ = ["recommend", "recommend_stream"]
