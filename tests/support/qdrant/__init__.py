"""Qdrant's locations and servers, in this process."""
