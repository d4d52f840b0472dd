"""A tracking server that lies, fails or is written to by two at once, and what runs say then."""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import faulty_proxy
import pytest
from planted_region import MLFLOW_WARNINGS, Mlflow

from features.common import deadline
from features.common.errors import ModelError, ServiceError
from jobs.pages import runs
from models.serving.bundle_files import BUNDLE_FILE, bundle_digest
from models.serving.mlflow_session import MlflowClient, MlflowException, connect
from models.serving.registry import Registry
from models.serving.runs import ID_TAG, Run, TableRead
from models.serving.versions import ModelVersion

pytestmark = [*MLFLOW_WARNINGS, pytest.mark.service]
MODEL = "cachecast-hostile"
BIG = b"x" * 2**16
FILES = {BUNDLE_FILE: "{}", "1h.lgb": "tree", "order/90m.lgb": "tree"}


@pytest.fixture(scope="module")
def proxy(server: Mlflow) -> Iterator[faulty_proxy.FaultyProxy]:
    with faulty_proxy.before(server.uri) as proxy:
        yield proxy


@pytest.fixture
def at(proxy: faulty_proxy.FaultyProxy) -> Iterator[Mlflow]:
    """The server, by way of the proxy, which tells the truth again after the test."""
    honest = proxy.lie
    yield Mlflow(uri=proxy.url, experiment="cachecast-hostile", patience=5)
    proxy.lie = honest
    proxy.faults.clear()


@pytest.fixture(scope="module")
def version(server: Mlflow, tmp_path_factory: pytest.TempPathFactory) -> ModelVersion:
    """A version whose files are those of `FILES`."""
    folder = tmp_path_factory.mktemp("bundle")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    client, experiment = connect(server.uri, "", "cachecast-hostile")
    run = client.create_run(experiment)
    client.log_artifacts(run.info.run_id, str(folder), "bundle")
    client.create_registered_model(MODEL)
    registered = client.create_model_version(MODEL, f"runs:/{run.info.run_id}/bundle", run_id=run.info.run_id)
    client.set_registered_model_alias(MODEL, "candidate", registered.version)
    return ModelVersion(f"{MODEL}/{registered.version}", bundle_digest(folder))


def keep(at: Mlflow, run: Run, export: Callable[[Path], None] = lambda file: None) -> str:
    return runs.keep(at, run, made_by="evaluate", export=export)


def written(server: Mlflow, run_id: str) -> list[tuple[str, str]]:
    """Name and status of a run, and of those that were written with it."""
    client = MlflowClient(server.uri)
    run = client.get_run(run_id)
    beside = f"tags.`{ID_TAG}` = '{run.data.tags[ID_TAG]}'"
    return [
        (each.info.run_name, each.info.status)
        for each in client.search_runs([run.info.experiment_id], beside)
    ]


def answers(part: str, body: object) -> faulty_proxy.Lie:
    """A lie: paths with `part` get `body`."""
    return lambda _, path: [json.dumps(body).encode()] if part in path else None


def load(at: Mlflow, version: ModelVersion) -> list[str]:
    """The names of a version's files."""
    with Registry(at.uri, "", at.experiment).files(version) as folder:
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("part", ["experiments/get-by-name", "mlflow-artifacts/artifacts?", "bundle/1h.lgb"])
def test_an_answer_without_an_end_fills_no_memory(
    proxy: faulty_proxy.FaultyProxy,
    at: Mlflow,
    version: ModelVersion,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
) -> None:
    monkeypatch.setattr(deadline, "MOST_BYTES", 2**20)
    sent = itertools.count()
    proxy.lie = lambda _, path: (BIG for _ in iter(lambda: next(sent), 2000)) if part in path else None
    with pytest.raises(ServiceError, match="longer than 1 MiB"):
        load(at, version)
    assert next(sent) < 1000


@pytest.mark.parametrize(
    ("part", "body"),
    [
        ("runs/create", {"run": {"info": {"run_id": 5}}}),
        ("experiments/get-by-name", {"experiment": {"experiment_id": {}}}),
    ],
)
def test_an_answer_of_another_form_is_an_error(
    proxy: faulty_proxy.FaultyProxy, at: Mlflow, part: str, body: object
) -> None:
    proxy.lie = answers(part, body)
    with pytest.raises(ServiceError, match="cannot be read"):
        keep(at, Run("odd", "evaluation"))


@pytest.mark.parametrize(
    "files", [["x"], None, [{"is_dir": False}], [{"path": BUNDLE_FILE, "is_dir": False, "file_size": "x"}]]
)
def test_a_listing_of_another_form_is_an_error(
    proxy: faulty_proxy.FaultyProxy, at: Mlflow, version: ModelVersion, files: object
) -> None:
    proxy.lie = answers("mlflow-artifacts/artifacts?", {"files": files})
    with pytest.raises(ServiceError, match="cannot be read"):
        load(at, version)


def test_files_are_fetched_as_listed_and_no_others(
    proxy: faulty_proxy.FaultyProxy, at: Mlflow, version: ModelVersion
) -> None:
    assert load(at, version) == sorted(FILES)
    proxy.lie = lambda _, path: [BIG] if path.endswith("1h.lgb") else None
    with pytest.raises(ModelError, match=r"lists 4 bytes of 1h\.lgb and sends 65536"):
        load(at, version)


def test_a_listing_that_grows_brings_no_further_files(
    proxy: faulty_proxy.FaultyProxy, at: Mlflow, version: ModelVersion
) -> None:
    listed = itertools.count()

    def grows(_method: str, path: str) -> Iterable[bytes] | None:
        if "artifacts?" not in path or path.endswith("order") or next(listed) < 1:
            return None
        many = [{"path": f"{i}h.lgb", "is_dir": False, "file_size": 1} for i in range(50)]
        return [json.dumps({"files": many}).encode()]

    proxy.lie = grows
    proxy.paths.clear()
    assert load(at, version) == sorted(FILES)
    assert sum("/artifacts/bundle/" in path for path in proxy.paths) == len(FILES)


def test_a_version_that_is_no_number_goes_nowhere(proxy: faulty_proxy.FaultyProxy, at: Mlflow) -> None:
    answer = {"name": MODEL, "version": "<script>1</script>", "creation_timestamp": 1, "status": "READY"}
    proxy.lie = answers("registered-models/alias", {"model_version": answer})
    with pytest.raises(ServiceError, match="no number"):
        Registry(at.uri, "", at.experiment).version_at("hostile", "candidate")


def test_runs_that_cannot_be_deleted_end_the_upload(
    proxy: faulty_proxy.FaultyProxy, server: Mlflow, at: Mlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uuid.UUID.hex", "0" * 32)
    keep(at, Run("first", "evaluation"))
    proxy.lie = answers("runs/delete", {})
    with pytest.raises(ServiceError, match="still lists runs that were deleted"):
        keep(at, Run("again", "evaluation"))


def test_a_refusal_is_no_unavailability(proxy: faulty_proxy.FaultyProxy, at: Mlflow) -> None:
    proxy.lie = lambda method, _: 403 if method == "PUT" else None
    began = time.monotonic()
    with pytest.raises(ServiceError, match="refuses: 403"):
        keep(at, Run("refused", "evaluation"), lambda file: file.touch())
    assert time.monotonic() - began < at.patience


def test_a_run_that_could_not_be_written_says_so(server: Mlflow, at: Mlflow) -> None:
    inner = Run("inner", "policy", metrics={"no (metric)": 1.0})
    with pytest.raises(ServiceError, match="Names may only contain"):
        keep(at, Run("outer", "evaluation", children=(inner,)))
    client, experiment = connect(server.uri, "", at.experiment)
    (outer,) = client.search_runs([experiment], "attributes.run_name = 'outer'")
    assert written(server, outer.info.run_id) == [("inner", "FAILED"), ("outer", "FAILED")]


def test_the_next_command_says_of_a_killed_one_that_it_was_killed(server: Mlflow, at: Mlflow) -> None:
    client, experiment = connect(server.uri, "", at.experiment)
    now_ms = int(time.time() * 1000)
    begun = {
        name: client.create_run(experiment, start_time=now_ms - hours * 3_600_000, tags=tags).info.run_id
        for name, hours, tags in (
            ("killed", 30, {ID_TAG: "a"}),
            ("at work", 2, {ID_TAG: "b"}),
            ("of others", 30, {}),
        )
    }
    keep(at, Run("next", "evaluation"))
    status = {name: client.get_run(run_id).info.status for name, run_id in begun.items()}
    assert status == {"killed": "KILLED", "at work": "RUNNING", "of others": "RUNNING"}


def test_odd_names_numbers_and_thousands_of_parameters_are_kept(server: Mlflow, at: Mlflow) -> None:
    odd = "gr\udcfcn\0<b>\x1b[31m"
    params = {f"p{i}": "x" for i in range(1200)} | {"trace": odd, "long": "y" * 20_000, "empty": ""}
    figures = {"good": 1.0, "nan": float("nan"), "inf": float("inf")}
    run_id = keep(at, Run(odd * 40, "evaluation", params, {"candidate": odd * 900}, figures))
    run = MlflowClient(server.uri).get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {"good": 1.0}
    assert len(run.data.params) == len(params)
    assert run.data.params["trace"] == r"gr\udcfcn\x00<b>\x1b[31m"


def test_a_deleted_experiment_is_an_error_that_says_how_to_restore_it(server: Mlflow) -> None:
    client, experiment = connect(server.uri, "", "cachecast-deleted")
    client.delete_experiment(experiment)
    with pytest.raises(ServiceError, match=f"mlflow experiments restore --experiment-id {experiment}"):
        connect(server.uri, "", "cachecast-deleted")


def test_an_experiment_that_another_made_just_now_is_used(
    server: Mlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = server.model_copy(update={"experiment": "cachecast-just-now", "patience": 60})
    _, experiment = connect(server.uri, "", at.experiment)
    n_calls, real = itertools.count(), MlflowClient.get_experiment_by_name

    def before_it_was_made(client: MlflowClient, name: str) -> object:
        return real(client, name) if next(n_calls) else None

    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", before_it_was_made)
    run_id = keep(at, Run("second", "evaluation"))
    assert next(n_calls) > 1
    assert MlflowClient(server.uri).get_run(run_id).info.experiment_id == experiment


def test_the_same_data_set_at_the_same_time_is_written_by_all(
    server: Mlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = server.model_copy(update={"experiment": "cachecast-at-once", "patience": 60})
    connect(server.uri, "", at.experiment)
    together, refused, real = threading.Barrier(8), [], MlflowClient.log_inputs
    calls = itertools.count()

    def at_once(client: MlflowClient, *args: Any) -> None:
        if next(calls) < together.parties:
            together.wait(60)
        try:
            real(client, *args)
        except MlflowException as error:
            refused.append(error.message)
            raise

    monkeypatch.setattr(MlflowClient, "log_inputs", at_once)
    for turn in range(30):  # until the server's database refuses one: most turns
        calls, read = itertools.count(), TableRead("accesses", f"c{turn}")
        runs_of_turn = [Run(f"{i}", "evaluation", tables=(read,)) for i in range(together.parties)]
        with ThreadPoolExecutor(together.parties) as pool:
            run_ids = list(pool.map(partial(keep, at), runs_of_turn))
        assert all(written(server, run_id)[0][1] == "FINISHED" for run_id in run_ids)
        if refused:
            break
    assert "IntegrityError" in refused[0]
