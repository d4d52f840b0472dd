"""Lazy imports: a module waits for its first use, and survives a use that comes too early."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import jobs
from jobs.cli.lazy import lazily


def test_a_module_touched_too_early_is_executed_at_its_next_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "waiting_module.py").write_text("import not_there_yet\n\ndef run():\n    return 'ran'\n")
    monkeypatch.setattr(jobs, "__path__", [*jobs.__path__, str(tmp_path)])
    with lazily():
        from jobs import waiting_module  # type: ignore[attr-defined]  # noqa: PLC0415
    try:
        for _ in range(2):
            with pytest.raises(ImportError, match="not_there_yet"):
                getattr(waiting_module, "something else", None)
        monkeypatch.setitem(sys.modules, "not_there_yet", sys)
        assert waiting_module.run() == "ran"
    finally:
        del sys.modules["jobs.waiting_module"]
        del jobs.waiting_module
