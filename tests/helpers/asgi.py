"""A browser without a window: asks an ASGI application in this process, and keeps its cookies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    text: str

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def said(self) -> str:
        """The text of the page, without its tags."""
        content = re.sub(r"<(head|svg)\b.*?</\1>", "", self.text, flags=re.DOTALL)
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", content)))

    def links(self) -> list[str]:
        return [unescape(target) for target in re.findall(r'href="([^"]*)"', self.text)]

    def fields(self, action: str) -> dict[str, str]:
        """The hidden fields of the form that goes there."""
        (form,) = re.findall(
            rf'<form(?=[^>]*action="{re.escape(action)}")[^>]*>.*?</form>', self.text, re.DOTALL
        )
        found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form)
        return {name: unescape(value) for name, value in found}


@dataclass
class Browser:
    """Asks `app` under the name `host`."""

    app: ASGIApp
    host: str = "127.0.0.1:8095"
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self._ask("GET", path, b"", headers)

    def post(
        self, path: str, form: Mapping[str, object] | bytes, headers: Mapping[str, str] | None = None
    ) -> Answer:
        body = form if isinstance(form, bytes) else urlencode(form).encode()
        return self._ask("POST", path, body, {"origin": f"http://{self.host}", **(headers or {})})

    def _ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str] | None) -> Answer:
        given = {"host": self.host, **(headers or {})}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = asyncio.run(self._call(method, path, body, given))
        for name, value in answer.headers:
            if name == "set-cookie":
                for cookie, morsel in SimpleCookie(value).items():
                    self.cookies[cookie] = morsel.value
        return answer

    async def _call(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        path, _, query = target.partition("?")
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items() if value],
            "server": ("127.0.0.1", 8095),
            "client": ("127.0.0.1", 40000),
        }
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start, *rest = sent
        text = b"".join(part.get("body", b"") for part in rest).decode()
        return Answer(start["status"], [(k.decode(), v.decode()) for k, v in start["headers"]], text)
