"""A client of Airflow's REST API, as far as tests and benches need it."""

from typing import Any

import requests
from waiting import eventually

DONE = ("success", "failed")


class Airflow:
    """The API at `url`, as user `admin`."""

    def __init__(self, url: str, password: str) -> None:
        self._api = f"{url}/api/v2"
        answer = requests.post(
            f"{url}/auth/token", json={"username": "admin", "password": password}, timeout=60
        )
        answer.raise_for_status()
        self._header = {"authorization": f"Bearer {answer.json()['access_token']}"}

    def call(self, method: str, path: str, **body: Any) -> Any:
        """What the API answers, as JSON; an error is an AssertionError."""
        json = body or None
        answer = requests.request(method, f"{self._api}/{path}", headers=self._header, json=json, timeout=60)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def until_known(self, *dags: str, within_s: float) -> None:
        """Wait for the DAG processor to have read these, and unpause them."""

        def are_known() -> bool:
            return set(dags) <= {dag["dag_id"] for dag in self.call("GET", "dags")["dags"]}

        assert eventually(are_known, within_s, 0.5), f"{dags} were not read in {within_s:.0f} s"
        for dag in dags:
            self.call("PATCH", f"dags/{dag}", is_paused=False)

    def trigger(self, dag: str, **body: Any) -> str:
        """Start a run; its id. `partition_key`, `conf` as the API has them."""
        run: str = self.call("POST", f"dags/{dag}/dagRuns", logical_date=None, **body)["dag_run_id"]
        return run

    def runs(self, dag: str) -> list[dict[str, Any]]:
        """The runs of a DAG, in the order in which they were made."""
        runs: list[dict[str, Any]] = self.call("GET", f"dags/{dag}/dagRuns?order_by=id")["dag_runs"]
        return runs

    def tasks(self, dag: str, run: str) -> dict[tuple[str, int], dict[str, Any]]:
        """The task instances of a run, by task and map index."""
        tasks = self.call("GET", f"dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]
        return {(task["task_id"], task["map_index"]): task for task in tasks}

    def state(self, dag: str, run: str) -> str:
        """The state of a run."""
        state: str = self.call("GET", f"dags/{dag}/dagRuns/{run}")["state"]
        return state

    def ended(self, dag: str, run: str, *, within_s: float) -> str:
        """The state of a run that has ended."""
        if not eventually(lambda: self.state(dag, run) in DONE, within_s, 0.5):
            states = {task: row["state"] for task, row in self.tasks(dag, run).items()}
            raise AssertionError(f"{dag} {run} has not ended after {within_s:.0f} s: {states}")
        return self.state(dag, run)

    def partition(self, dag: str, key: str, *, within_s: float) -> str:
        """The newest run of a DAG for a partition, once there is one."""

        def runs_of_key() -> list[str]:
            return [run["dag_run_id"] for run in self.runs(dag) if run["partition_key"] == key]

        runs = eventually(runs_of_key, within_s, 0.5)
        assert runs, f"no run of {dag} for {key} in {within_s:.0f} s"
        return runs[-1]
