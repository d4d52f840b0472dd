"""File systems that hang, under what `queue` and `prefill` read and keep: a line, in bounded time."""

import os
import time
from pathlib import Path

import pytest
from cachecast_main import cachecast
from folder_site import folder_site
from hung_mount import hung_mount

from features.common import files

PREFILL: list[str | Path] = ["prefill", "--cache", "dir"]
QUEUE: list[str | Path] = ["queue", "--name", "q"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_what_hangs_ends_a_queue_and_a_prefill_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files.silent.__kwdefaults__ is not None
    monkeypatch.setattr(files.silent, "__kwdefaults__", files.silent.__kwdefaults__ | {"within_s": 0.3})
    (tmp_path / "names").write_text("cms:/store/f.root\n")
    (tmp_path / "queue.json").write_text("[]")
    hung, site = tmp_path / "hung", folder_site(tmp_path).read_text()
    hung.mkdir()
    with hung_mount(hung):
        for on_it, words in (
            ("", [*PREFILL, "--files", hung / "names"]),
            ("", [*PREFILL, "--described", hung / "job"]),
            ("", [*QUEUE, "--input", hung / "queue.json"]),
            ("tables", [*PREFILL, "--files", tmp_path / "names"]),
            ("tables", [*PREFILL, "--files", tmp_path / "names", "--dry-run"]),
            ("tables", [*QUEUE, "--input", tmp_path / "queue.json"]),
            ("journal", [*PREFILL, "--files", tmp_path / "names"]),
            ("cache", [*PREFILL, "--files", tmp_path / "names"]),
        ):
            text = site.replace(f'"{tmp_path}/{on_it}', f'"{hung}/{on_it}') if on_it else site
            (tmp_path / "site.toml").write_text(text)
            began = time.monotonic()
            ended = cachecast(*words, "--conf", tmp_path / "site.toml")
            assert (ended.returncode, ended.stderr.count("error: ")) == (1, 1), ended
            assert "does not answer" in ended.stderr and time.monotonic() - began < 50, (words, ended)
