"""Posting a comment: a server on this machine keeps comments as GitHub does."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from infra.review import github
from infra.review.comment import MARKER
from streaming_core.errors import BadInput, CommandFailed

TOKEN, COMMENTS = "a-token", "/repos/our/checks/issues/7/comments"


class Server(ThreadingHTTPServer):
    """Comments on pull request 7 of our/checks. `answer` is the status of its answers to writes."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.comments, self.answer = [], 200
        self.address = f"http://127.0.0.1:{self.server_port}"

    def comment(self, number: int) -> dict:
        url = f"{self.address}/repos/our/checks/issues/comments/{number}"
        return {"url": url, "html_url": f"{url}.html", "body": self.comments[number]}


class Handler(BaseHTTPRequestHandler):
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


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def post(server: Server, text: str, token: str = TOKEN) -> str:
    return github.post(server.address, "our/checks", token, 7, f"{MARKER}\n{text}")


@pytest.mark.parametrize("others", [0, 1, github.PAGE, github.PAGE + 1])
def test_second_review_replaces_the_comment_of_the_first(server, others):
    server.comments += ["hello"] * others
    assert post(server, "red").startswith("posted the comment http")
    server.comments.append(f"I saw {MARKER}")
    assert post(server, "green").startswith("replaced the comment http")
    assert server.comments == ["hello"] * others + [f"{MARKER}\ngreen", f"I saw {MARKER}"]


def test_read_only_token_is_no_failure(server):
    server.answer = 403
    assert "may not comment" in post(server, "red")
    assert server.comments == []


@pytest.mark.parametrize("answer", [404, 500])
def test_other_answer_is_a_failure_with_its_status(server, answer):
    server.answer = answer
    with pytest.raises(CommandFailed, match=str(answer)):
        post(server, "red")


def test_wrong_token_and_no_server_are_failures(server):
    with pytest.raises(CommandFailed, match="401"):
        post(server, "red", token="another")
    with pytest.raises(CommandFailed, match="refused"):
        github.post("http://127.0.0.1:9", "our/checks", TOKEN, 7, "")


def test_program_names_the_missing_variable_or_file(monkeypatch, tmp_path):
    for name in ("GITHUB_API_URL", "GITHUB_REPOSITORY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    with pytest.raises(BadInput, match="GITHUB_TOKEN is not set"):
        github.main(["7", str(tmp_path / "comment.md")])
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    with pytest.raises(BadInput, match="cannot read"):
        github.main(["7", str(tmp_path / "comment.md")])
