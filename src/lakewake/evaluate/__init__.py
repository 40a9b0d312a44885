"""Questions with known answers → how good a search is. Searches through a callable."""

from lakewake.evaluate.compare import compare
from lakewake.evaluate.questions import read_questions
from lakewake.evaluate.run import evaluate

__all__ = ["compare", "evaluate", "read_questions"]
