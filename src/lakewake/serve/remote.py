"""The Model Context Protocol over HTTP, at /mcp, under the same keys, rights and limits.

Each request stands on its own: there are no sessions that another caller could continue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lakewake.errors import SetupError
from lakewake.serve.callers import Views, audited
from lakewake.serve.limits import Gate
from lakewake.serve.refusals import Refused

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

PATH = "/mcp"


class Remote:
    """Answers MCP requests with the tools of `lakewake mcp`.

    Args:
        views: the indexes as the caller sees them.
        gates: where recommendations run, and where the other tools do.
    """

    def __init__(self, views: Views, gates: tuple[Gate, Gate], max_bytes: int) -> None:
        self._views, self._gates, self._max_bytes = views, gates, max_bytes

    @property
    def route(self) -> Route:
        """Requests only: a stream from the server to the client would never end."""
        return Route(PATH, endpoint=self, methods=["POST"], include_in_schema=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        # Made for this request, so that its tasks inherit the caller of this request.
        manager = StreamableHTTPSessionManager(
            self._server._lowlevel_server,
            json_response=True,
            stateless=True,
            max_request_body_size=self._max_bytes,
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    @cached_property
    def _server(self) -> MCPServer:
        try:
            from lakewake.mcp import build_server
        except SetupError as error:
            raise Refused(501, "mcp", error.fact, error.hint) from error
        return build_server(self._views, self._gated)

    def _gated(self, tool: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """The tool, run in a thread within the limits of the server."""
        from mcp.server.mcpserver.exceptions import ToolError

        gate = self._gates[0 if tool.__name__ == "recommend" else 1]

        @wraps(tool)
        async def call(**given: Any) -> Any:
            text = given.get("text") or given.get("query")
            index = given.get("index") or ""
            row = [given.get("partition", ""), given["key"]] if "key" in given else None
            said = [turn.content for turn in given.get("conversation") or ()] or None
            more = {"row": row, "conversation": said}
            more |= {"where": given.get("where"), "mode": given.get("mode")}
            try:
                with audited(self._views, f"mcp {tool.__name__}", index, text, **more):
                    return await gate.run(partial(copy_context().run, partial(tool, **given)))
            except Refused as refused:
                raise ToolError(f"{refused.fact}\nhint: {refused.hint}") from refused

        return call
