"""Posting a comment: a server on this machine keeps comments as GitHub does."""

import pytest

from infra.review import github
from infra.review.comment import MARKER
from streaming_core.errors import BadInput, CommandFailed
from tests.support.forge import NUMBER, REPOSITORY, TOKEN, Forge


@pytest.fixture
def server():
    with Forge() as forge:
        yield forge


def post(server: Forge, text: str, token: str = TOKEN) -> str:
    return github.post(server.address, REPOSITORY, token, NUMBER, f"{MARKER}\n{text}")


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
        github.post("http://127.0.0.1:9", REPOSITORY, TOKEN, NUMBER, "")


def test_program_names_the_missing_variable_or_file(monkeypatch, tmp_path):
    for name in ("GITHUB_API_URL", "GITHUB_REPOSITORY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    with pytest.raises(BadInput, match="GITHUB_TOKEN is not set"):
        github.main(["7", str(tmp_path / "comment.md")])
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    with pytest.raises(BadInput, match="cannot read"):
        github.main(["7", str(tmp_path / "comment.md")])
