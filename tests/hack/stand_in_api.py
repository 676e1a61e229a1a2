import json
from typing import Any
from urllib.parse import unquote

from aiohttp import web


class Server:
    """Answers each path with what it is given; a watch or a log ends after each answer."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.asked: list[tuple[str, str, Any]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        self.asked.append(
            (
                request.method,
                unquote(request.path_qs),
                (request.content_type, json.loads(body)) if body else None,
            )
        )
        if request.path not in self.lines:
            return web.json_response({"message": f"no {request.path}"}, status=404)
        return web.Response(
            body="".join(f"{line}\n" for line in self.lines[request.path]).encode(
                errors="surrogateescape"
            )
        )

    def tell(self, path: str, *objects: dict[str, Any], change: str = "ADDED") -> None:
        self.lines[path] = [json.dumps({"type": change, "object": it}) for it in objects]
