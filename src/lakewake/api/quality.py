"""How good the searches of an index are, by questions with known answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lakewake.errors import LakewakeError
from lakewake.model.choices import MODES, Mode, one_of

if TYPE_CHECKING:
    from lakewake.model.canaries import Canaries, CanarySettings
    from lakewake.model.evaluation import Evaluation, Questions
    from lakewake.search.view import View

T = TypeVar("T")


class Quality:
    """Measures searches."""

    @property
    def name(self) -> str:
        """The name of the index in the configuration."""
        raise NotImplementedError

    def with_view(self, work: Callable[[View], T], *, as_of: str | None = None) -> T:
        """Call `work` with a view."""
        raise NotImplementedError

    def evaluate(
        self,
        questions: str | Path,
        *,
        modes: Sequence[str] = (),
        split: str = "test",
        as_of: str | None = None,
        rerank: bool | None = None,
    ) -> Evaluation:
        """How good searches are: nDCG@10, recall@100 and MRR, with intervals. No JVM is started.

        All questions are asked of one version of the index.

        Args:
            questions: a JSON Lines file with `query` and `relevant` (a list of keys, or key →
                grade) in each line; or a folder in BEIR's format.
            modes: the modes to measure; by default all that the index has.
            split: of a folder: `test` reads `qrels/test.tsv`.
            as_of: measure the index as it was at this instant of the table.
            rerank: re-rank the best rows, as in `search`.

        Raises:
            ConfigError: the questions cannot be read.
            IndexMissing: there is no index yet.
        """
        from lakewake.evaluate import read_questions

        chosen = [one_of(Mode, "mode", mode).value for mode in modes]
        asked = read_questions(questions, split)
        return self.with_view(
            lambda view: evaluated(self.name, view, asked, chosen, rerank), as_of=as_of
        )

    def ask_canaries(self, asked: CanarySettings) -> Canaries:
        """How well the canaries are answered now. An error is reported, not raised."""
        from lakewake.model.canaries import Canaries
        from lakewake.model.evaluation import DIGITS

        try:
            found = self.evaluate(asked.file, modes=[asked.mode])
        except LakewakeError as error:
            return Canaries(asked.mode, error=error.fact)
        return Canaries(
            mode=asked.mode,
            questions=len(found.questions),
            values={
                name: round(mean.value, DIGITS) for name, mean in found.means[asked.mode].items()
            },
            fingerprint=found.fingerprint,
        )


def evaluated(
    name: str, view: View, asked: Questions, modes: Sequence[str], rerank: bool | None
) -> Evaluation:
    """Ask all questions of one version of an index."""
    from lakewake.evaluate import evaluate
    from lakewake.evaluate.metrics import DEPTH
    from lakewake.model.evaluation import Evaluation

    def find(text: str, mode: str) -> list[str]:
        return [hit.key for hit in view.search(text, k=DEPTH, mode=mode, rerank=rerank).hits]

    usual = MODES if view.recipe.fields else (Mode.VECTOR.value,)
    means, answered = evaluate(asked, list(dict.fromkeys(modes or usual)), find)
    return Evaluation(
        index=name,
        instant=view.instant,
        generation=view.generation,
        source=asked.source,
        fingerprint=asked.fingerprint,
        means=means,
        questions=answered,
        unfound=sum(
            all(values["recall@100"] == 0 for values in one.values.values()) for one in answered
        ),
    )
