"""What the indexes of one configuration have in common."""

from pathlib import Path

import lakewake

INDEX = """
[[index]]
name  = "{name}"
table = "table"
text  = "{{text}}"
store = "lance://index"
model = {{provider = "hashing", dimension = {dimension}}}
"""


def test_indexes_of_one_model_share_it(tmp_path: Path) -> None:
    config = tmp_path / "lakewake.toml"
    dimensions = {"one": 16, "two": 16, "other": 32}
    config.write_text("".join(INDEX.format(name=n, dimension=d) for n, d in dimensions.items()))
    with lakewake.open(config) as lake:
        one, two, other = (lake[name].parts.embedder for name in dimensions)
    assert one is two
    assert one is not other
