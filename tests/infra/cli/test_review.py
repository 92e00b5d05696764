"""`lockstep review` with bad input: one line, exit code 2, and nothing written. And a change of no application."""

from xml.etree import ElementTree

from tests.infra.cli.conftest import lockstep, refused


def test_unknown_branch_is_refused(home, tmp_path, capsys):
    assert "is not a commit of" in refused(capsys, "review", "--base", "nosuch", "--out", str(tmp_path / "out"))
    assert "is not a commit of" in refused(
        capsys, "review", "--base", "--upload-pack=x", "--out", str(tmp_path / "out")
    )
    assert not (tmp_path / "out").exists()
    assert not home.root.exists()


def test_unknown_matrix_is_refused(home, tmp_path, capsys):
    assert "unknown matrix" in refused(
        capsys, "review", "--base", "HEAD", "--matrix", "no", "--out", str(tmp_path / "out")
    )
    assert not (tmp_path / "out").exists()


def test_change_of_no_application_is_green_and_starts_no_run(home, tmp_path, capsys):
    assert lockstep("review", "--base", "HEAD", "--out", str(tmp_path / "out")) == 0
    assert "concerns no application" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"comment.md", "junit.xml", "findings.sarif"}
    assert len(ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()) == 0
    assert not home.root.exists()
