"""A server that keeps the comments on one pull request, as the API of GitHub does."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

REPOSITORY, NUMBER, TOKEN = "our/checks", 7, "a-token"
COMMENTS = f"/repos/{REPOSITORY}/issues/{NUMBER}/comments"


class Forge(ThreadingHTTPServer):
    """A server in a thread of its own; `answer` is the status of its answers to new comments."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.comments, self.answer = [], 200
        self.address = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self._thread.join()
        self.server_close()

    def comment(self, number: int) -> dict:
        url = f"{self.address}/repos/{REPOSITORY}/issues/comments/{number}"
        return {"url": url, "html_url": f"{url}.html", "body": self.comments[number]}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        address = urlsplit(self.path)
        assert address.path == COMMENTS
        size, page = (int(parse_qs(address.query)[name][0]) for name in ("per_page", "page"))
        numbers = range(len(self.server.comments))[size * (page - 1) :][:size]
        self.reply(200, [self.server.comment(number) for number in numbers])

    def do_POST(self):
        assert self.path == COMMENTS
        if self.server.answer == 200:
            self.server.comments.append(self.content()["body"])
        self.reply(self.server.answer, self.server.comment(-1) if self.server.comments else {})

    def do_PATCH(self):
        number = int(self.path.rpartition("/")[2])
        self.server.comments[number] = self.content()["body"]
        self.reply(200, self.server.comment(number))

    def content(self) -> dict:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def reply(self, status: int, content: object) -> None:
        status = status if self.headers["Authorization"] == f"Bearer {TOKEN}" else 401
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass
