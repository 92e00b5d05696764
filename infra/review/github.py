"""Posts the comment of a review on a pull request of GitHub, or replaces the one of the last review.

    python -m infra.review.github NUMBER FILE.md

GITHUB_API_URL, GITHUB_REPOSITORY and GITHUB_TOKEN are variables of the environment, as in every job. The token of a
pull request from a fork may not comment. The program then says so, and the summary of the job has the text.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from infra.review.comment import MARKER
from streaming_core.errors import BadInput, CommandFailed, refusal
from streaming_core.process import ending

NAME = "comment"
PAGE = 100  # comments in an answer, the most that GitHub sends
SECONDS = 30.0  # to wait for an answer


def post(api: str, repository: str, token: str, number: int, body: str) -> str:
    """Post a comment, or replace the one that begins with the same marker; returns a line about it.

    Raises:
        CommandFailed: The server refuses, or does not answer.
    """
    comments = f"{api}/repos/{repository}/issues/{number}/comments"
    try:
        for comment in _comments(comments, token):
            if comment["body"].startswith(MARKER):
                _call("PATCH", comment["url"], token, {"body": body})
                return f"replaced the comment {comment['html_url']}"
        return f"posted the comment {_call('POST', comments, token, {'body': body})['html_url']}"
    except HTTPError as error:
        if error.code == HTTPStatus.FORBIDDEN:
            return "the token may not comment on this pull request; the summary of the job has the text"
        raise CommandFailed(f"{api}: {error.code} {error.reason}") from None
    except (URLError, OSError, ValueError, LookupError, TypeError) as error:
        raise CommandFailed(f"{api}: {error}") from None


def _comments(url: str, token: str) -> Iterator[dict[str, Any]]:
    """Yield the comments of a pull request, oldest first."""
    page: list[dict[str, Any]] = []
    number = 1
    while number == 1 or len(page) == PAGE:
        page = _call("GET", f"{url}?per_page={PAGE}&page={number}", token)
        yield from page
        number += 1


def _call(method: str, url: str, token: str, content: Any = None) -> Any:
    headers = {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {token}"}
    data = None if content is None else json.dumps(content).encode()
    with urlopen(Request(url, data, headers, method=method), timeout=SECONDS) as answer:
        return json.load(answer)


def main(argv: Sequence[str] | None = None) -> int:
    """Post the comment of a review on a pull request, or replace the last one."""
    parser = argparse.ArgumentParser(prog=NAME, description=main.__doc__)
    parser.add_argument("number", type=int, help="the number of the pull request")
    parser.add_argument("file", type=Path, metavar="FILE.md", help="the comment")
    request = parser.parse_args(argv)
    names = ("GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_TOKEN")
    if missing := [name for name in names if not os.environ.get(name)]:
        raise BadInput(f"{missing[0]} is not set: run this in a job of GitHub Actions")
    try:
        body = request.file.read_text()
    except OSError as error:
        raise refusal(error, f"cannot read {request.file}") from None
    api, repository, token = (os.environ[name] for name in names)
    print(post(api, repository, token, request.number, body))
    return 0


if __name__ == "__main__":
    ending.end(NAME, main)
