"""The server: the same functions over HTTP, safe by default.

Needs the extra `serve`; imported only by `lakewake serve`.
"""
