"""The contract of stores for an index in the lake, on any storage."""

from __future__ import annotations

from lakewake.testing.stores import StoreContract


class LakeContract(StoreContract):
    """What every store promises. A drop waits for the commit that runs."""

    drops = 1
    test_a_commit_during_a_drop_fails_and_leaves_nothing = None
