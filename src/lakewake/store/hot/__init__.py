"""The hot tier: a version of an index in memory, in front of the store that holds it.

A `Base` is what was read once: vectors in cells, and the columns that a hit shows. A `Held` is one
version of the index: the base without the chunks that are gone, and the chunks that came since.
Searches by vector are answered from it, everything else by the store.
"""
