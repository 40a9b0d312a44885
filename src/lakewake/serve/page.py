"""The page and its files. They are read once and served by name, so no request names a path."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).with_name("page")
#: Path → the page that is served there.
PAGES = {"/": "index.html", "/operators": "operators.html"}
#: Where the page's files are served.
AT = "/page/"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True)
class PageFile:
    """One file of the page."""

    content: bytes
    type: str

    @property
    def tag(self) -> str:
        """The ETag of this content."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    def answer(self, request: Request) -> Response:
        """The file, or 304 if the browser has this version."""
        headers = {"ETag": self.tag, "Cache-Control": "no-cache"}
        known = request.headers.get("if-none-match", "")
        if self.tag in [tag.strip().removeprefix("W/") for tag in known.split(",")]:
            return Response(status_code=304, headers=headers)
        body = b"" if request.method == "HEAD" else self.content
        return Response(body, media_type=self.type, headers=headers)


def read_page(folder: Path = FOLDER) -> dict[str, PageFile]:
    """Path → file: the two pages, and the files that they need below `/page/`."""
    if not folder.is_dir():
        return {}
    files = {
        f"{AT}{file.name}": PageFile(file.read_bytes(), TYPES[file.suffix])
        for file in sorted(folder.iterdir())
        if file.suffix in TYPES and file.is_file()
    }
    found = {at: files.pop(f"{AT}{name}") for at, name in PAGES.items() if f"{AT}{name}" in files}
    return {**found, **files}
