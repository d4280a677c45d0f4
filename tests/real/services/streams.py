"""An ASGI app that counts what it was sent, and fails at the third order; for a server that speaks HTTP/2 in clear."""

received = []


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    received.append(body)
    status = 500 if len(received) == 3 else 200
    text = f"{scope['http_version']} {scope['method']} {len(b''.join(received))}".encode()
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]}
    )
    await send({"type": "http.response.body", "body": text})
