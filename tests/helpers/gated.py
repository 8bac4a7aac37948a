"""An application for the gate in front of Gradio, and the routes that the page uses."""

import asyncio
from typing import Any

STREAM, DIRECT, STOP = "/stream", "/gradio_api/run/predict", "/stop"
RACE_ID = "0a" * 16
USED = {
    "GET": f"""/ /healthz /code.svg
        /config /theme.css /recordings/{RACE_ID}.json /assets/index-a_B.1.js /static/fonts/x/y-Bold.woff2
        /gradio_api/info /gradio_api/queue/data /gradio_api/startup-events /gradio_api/app_id
        /gradio_api/call/v2/race/{RACE_ID}""",
    "POST": f"""{STREAM} {DIRECT} {STOP} /recordings /prompts /tokens /gradio_api/queue/join
        /gradio_api/call/v2/race""",
}


class Inside:
    """Behind the gate: records the bodies that reach it, and waits for `hold` before it answers with `status`."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.bodies, self.scope_of = status, list[bytes](), dict[str, Any]()
        self.hold: asyncio.Event | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.hold is not None:
            await self.hold.wait()
        body, more = b"", scope["method"] == "POST"
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        self.bodies.append(body)
        scope.update(self.scope_of)
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"inside"})
