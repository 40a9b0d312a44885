"""The examples of docs/spark.md print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import ROOT
from support.cellar import make_cellar

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "spark.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", PAGE, re.DOTALL)


def test_the_examples_print_what_the_page_shows(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_cellar(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {"spark": spark}
    assert len(EXAMPLES) == PAGE.count("```python")
    for source, shown in EXAMPLES:
        capsys.readouterr()
        exec(compile(source, "spark.md", "exec"), names)
        assert capsys.readouterr().out.strip() == shown.strip()
