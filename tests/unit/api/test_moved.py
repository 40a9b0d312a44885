"""An index whose folder was moved is found by the changed configuration."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakewake
from lakewake.model.plan import Action
from lakewake.store.qdrant.location import CONNECTIONS
from support.cellar import WINES, make_cellar
from support.following import follow, table_of
from support.sampling import rid, values


def test_a_moved_folder_is_found_by_the_changed_configuration(tmp_path: Path) -> None:
    config = make_cellar(tmp_path)
    with lakewake.open(config) as lake:
        before = lake["wines"].search("smoky red", k=10)
    shutil.move(tmp_path / "index", tmp_path / "elsewhere")
    config.write_text(config.read_text().replace("lance://index", "lance://elsewhere"))
    with lakewake.open(config) as lake:
        index = lake["wines"]
        assert (index.describe().rows, index.describe().generation) == (len(WINES), 1)
        assert index.search("smoky red", k=10) == before
        assert index.status().built


@pytest.mark.parametrize("scheme", ["lance", "qdrant+local"])
def test_it_is_followed_from_its_new_folder_and_embeds_nothing_again(
    tmp_path: Path, scheme: str
) -> None:
    first = follow(f"{scheme}://{tmp_path}/there", home=tmp_path)
    table_of(first).upsert({rid("a"): values("one"), rid("b"): values("two")})
    first.sync()
    CONNECTIONS.close_all()
    shutil.move(tmp_path / "there", tmp_path / "here")
    moved = follow(f"{scheme}://{tmp_path}/here", table_of(first), home=tmp_path)
    assert moved.sync().action is Action.NOTHING
    table_of(moved).upsert({rid("c"): values("three")})
    assert moved.sync().embedded == 1
    assert moved.describe().rows == 3
    CONNECTIONS.close_all()
