"""Coverage-guided fuzzing of every parser of bytes from outside, by atheris.

bench/fuzz.py [--seconds N] [--target NAME ...]     a row per parser; exit code 1 if one has a defect

Parsers and what they may answer stand in tests/support/oracles/untrusted.py; each begins from real samples
and runs in a process of its own. A defect is an exception that is none of ours, more than 2 GB of memory, or
20 s for one input; the input that does it is kept, and named. The same seed gives the same inputs, as far as
time allows.

Needs the environment that `make verify` makes: .venv/bin/python bench/fuzz.py
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "oracles")]
DATA = ROOT / "tests" / "data"
ROOMS = ["features", "replay", "prefetch", "jobs"]
_LIMITS = ["-timeout=20", "-rss_limit_mb=2048", "-max_len=16384", "-print_final_stats=1", "-verbosity=1"]


def main() -> int:
    """Print what each parser bore; 1 if one did not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=20, help="for each parser")
    parser.add_argument("--target", action="append", help="one parser, instead of all; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        fuzz(options.one, options.corpus, options.seconds, options.seed)
    from untrusted import parsers  # noqa: PLC0415  a fuzzing process imports it instrumented

    with contextlib.closing(parsers(DATA)) as known:
        targets = options.target or list(known.targets())
    print(f"{'parser':18} {'inputs':>9} {'inputs/s':>9} {'covered':>8}  verdict")
    passed = [row(name, options.seconds, options.seed) for name in targets]
    print(f"{sum(passed)} of {len(passed)} parsers bore all they were given")
    return 0 if all(passed) else 1


def row(name: str, seconds: int, seed: int) -> bool:
    """Fuzz one parser in a process of its own, and print how it went."""
    corpus = Path(tempfile.mkdtemp(prefix=f"cachecast-fuzz-{name}-"))
    words = ["--one", name, "--seconds", str(seconds), "--seed", str(seed), "--corpus", str(corpus)]
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, check=False, cwd=corpus
    )
    output = done.stdout + done.stderr
    n_inputs = number_after(output, r"number_of_executed_units: (\d+)")
    covered = number_after(output, r".*cov: (\d+)")
    is_well = done.returncode == 0 and n_inputs > 0
    verdict = "ok" if is_well else f"DEFECT, exit code {done.returncode}: {reason(output)}"
    print(f"{name:18} {n_inputs:9} {n_inputs / seconds:9.0f} {covered:8}  {verdict}", flush=True)
    if is_well:
        shutil.rmtree(corpus)
    return is_well


def number_after(output: str, pattern: str) -> int:
    """The last number that `pattern` finds."""
    numbers = re.findall(pattern, output)
    return int(numbers[-1]) if numbers else 0


def reason(output: str) -> str:
    """The exception, where it was raised, and the file with the input."""
    lines = [line.strip() for line in output.splitlines()]
    error = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception|Interrupt)\b|.*ERROR: ", line)]
    places = [line for line in lines if line.startswith("File ") and str(ROOT) in line]
    units = [line.rpartition(" ")[2] for line in lines if "Test unit written to" in line]
    return " | ".join([*error[-1:], *places[-1:], *units[-1:]]) or " | ".join(lines[-3:])


def compiled() -> list[str]:
    """The modules with functions that numba compiles, which can hold nobody's calls to a tracer."""
    modules = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    paths = [path for path in modules if "features.common.jit import" in path.read_text()]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]


def fuzz(name: str, corpus: Path, seconds: int, seed: int) -> None:
    """Fuzz until the time is up; never returns."""
    import atheris  # noqa: PLC0415  only this process is instrumented

    with atheris.instrument_imports(include=ROOMS, exclude=compiled()):
        from untrusted import answers, parsers  # noqa: PLC0415
    target = parsers(DATA, corpus).targets()[name]
    seeds = corpus / "corpus"
    seeds.mkdir()
    for i, content in enumerate(target.seeds):
        (seeds / f"seed-{i}").write_bytes(content)
    time_limit = [f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={corpus}/"]
    atheris.Setup([name, *_LIMITS, *time_limit, str(seeds)], lambda content: answers(target.parse, content))
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
