"""The server: the same functions over HTTP, secure by default.

Needs the extra `serve`. Only `lakewake serve` imports it.
"""
