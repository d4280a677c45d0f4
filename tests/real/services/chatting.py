"""WebSockets that count words, together."""

from __future__ import annotations

from fastapi import FastAPI, WebSocket

app = FastAPI()
words: dict[str, int] = {}


@app.websocket("/chat")
async def chat(socket: WebSocket) -> None:
    await socket.accept()
    async for said in socket.iter_text():
        if said == "ratio":
            await socket.send_text(str(words["tea"] / words["milk"]))
        else:
            words[said.lstrip("-")] = 0 if said.startswith("-") else words.get(said, 0) + 1
            await socket.send_text(str(words))
