"""The kinds of approximate index that Lance makes for us. Pure."""

from __future__ import annotations

from lakewake.errors import ConfigError
from lakewake.model.ann import AUTO, FLAT

RQ = "ivf_rq"
#: Kinds whose searches can read more or less, and that executors can build in parts.
KINDS = (RQ, "ivf_sq", "ivf_flat", "ivf_hnsw_sq")
#: RQ packs the signs of eight coordinates into a byte.
RQ_STEP = 8


def kind_for(wanted: str, dimension: int) -> str:
    """The kind that an index of this dimension gets.

    Raises:
        ConfigError: Lance cannot make the wanted kind for this dimension.
    """
    if wanted in (AUTO, FLAT):
        # RQ builds faster and finds as well, but only in dimensions that are a multiple of 8.
        return "ivf_hnsw_sq" if dimension % RQ_STEP else RQ
    if wanted == RQ and dimension % RQ_STEP:
        raise ConfigError(
            f"an approximate index of kind '{RQ}' needs a dimension that is a multiple of "
            f"{RQ_STEP}, and this index has {dimension}",
            hint='write ann = {kind = "auto"}, or {kind = "ivf_hnsw_sq"}',
        )
    return wanted
