"""Frozen values that the stages exchange. Nothing here does I/O."""
