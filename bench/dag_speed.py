"""What parsing each DAG costs beyond importing Airflow: a fork per DAG, as the DAG processor makes.

CPU seconds, which others at work on the machine do not stretch: a parse waits for nothing. Target: at most
0.3 s a DAG, or 0.1 of the import on a slow machine. Exit code 1 with --strict if missed.

Needs the environment that `make verify` makes: .venv/bin/python bench/dag_speed.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
ROUNDS = 5
TARGET_S = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true")
    strict = parser.parse_args().strict
    os.environ |= {"AIRFLOW_HOME": tempfile.mkdtemp(), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "ERROR"
    begun = time.process_time()
    from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415  the clock runs
    from airflow.providers.standard.operators.bash import BashOperator  # noqa: F401, PLC0415
    from airflow.providers.standard.operators.empty import EmptyOperator  # noqa: F401, PLC0415

    import_s = time.process_time() - begun
    ignored = (ROOT / "dags" / ".airflowignore").read_text().split()
    ours = [path for path in sorted((ROOT / "dags").glob("*.py")) if path.name not in ignored]
    times: dict[Path, list[float]] = {path: [] for path in ours}
    for _ in range(ROUNDS):
        for path in ours:
            times[path].append(parsed(path, DagBag))
    print(f"importing Airflow: {import_s:.2f} s")
    print(f"{'DAG':24} {'median':>8} {'of import':>10}")
    worst = 0.0
    for path, path_times in times.items():
        median_s = statistics.median(path_times)
        worst = max(worst, median_s)
        print(f"{path.stem:24} {median_s:6.3f} s {median_s / import_s:10.3f}")
    if strict and worst > max(TARGET_S, 0.1 * import_s):
        sys.exit(f"{worst:.2f} s is more than {TARGET_S} s")


def parsed(path: Path, dag_bag: type) -> float:
    """Seconds that a fresh fork takes to parse one file, which must give one DAG."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            begun = time.process_time()
            bag = dag_bag(str(path))
            cpu_s = time.process_time() - begun
            if len(bag.dags) == 1:
                os.write(write, str(cpu_s).encode())
        finally:
            os._exit(0)
    os.close(write)
    answer = os.read(read, 64)  # nothing where the child has ended without a word
    os.close(read)
    os.waitpid(child, 0)
    if not answer:
        sys.exit(f"{path.name} gives no DAG")
    return float(answer)


if __name__ == "__main__":
    main()
