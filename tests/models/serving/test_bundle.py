"""What a bundle's JSON may say, and when it may serve; MLflow that leads elsewhere, or never ends; runs."""

import dataclasses
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import http_answers
import pytest
from certificates import certificate
from hypothesis import given, settings
from hypothesis import strategies as st

from features.common.errors import ModelError, ServiceError, StaleInputError
from features.spec import FeatureSpec
from models.learning.calibration import IDENTITY, Knots
from models.serving import mlflow_session, runs
from models.serving.bundle import MAX_CHARS, Bundle, HorizonModel, OrderModel
from models.serving.drift import Reference
from models.serving.mlflow_session import check_place, connect, in_time

SPEC = FeatureSpec(cycle_s=3600, horizons_s=(3600,), candidate_s=86400, active_dataset_s=3600)


ORDER = OrderModel(
    horizons_s=(5400, 10800),
    columns=("size_bytes", "recency_s"),
    kinds=("root", ""),
    until_s=9000,
    readers=("user",),
)


def bundle() -> Bundle:
    spread = Reference((0.1, 0.5), (0.2, 0.3, 0.4, 0.1), 0.02)
    model = HorizonModel(
        horizon_s=3600,
        learner="lightgbm",
        calibration=Knots("platt", (0.0, 1.0), (0.1, 0.9)),
        reads=IDENTITY,
        trained_until_s=7200,
        scores=spread,
    )
    return Bundle(
        region="emea",
        spec=SPEC,
        columns=("recency_s", "tier"),
        vocabulary={"tier": ["AOD"]},
        until_s=9000,
        models=(model,),
        dropped={"30d": "too few days"},
        spread={"recency_s": spread},
        order=ORDER,
    )


def test_a_bundle_survives_json() -> None:
    assert Bundle.from_json(bundle().to_json()) == bundle()
    without = dataclasses.replace(bundle(), order=None, no_order="too few accesses")
    assert Bundle.from_json(without.to_json()) == without


def test_a_bundle_of_another_version_says_so() -> None:
    raw = json.loads(bundle().to_json())
    raw["format"] = 5
    with pytest.raises(ModelError, match=r"another version of cachecast wrote it.*train again"):
        Bundle.from_json(json.dumps(raw))


@pytest.mark.parametrize(
    "text",
    [
        *("{}", "[]", "nonsense", '{"format": 99}', '{"format": 2}', "[" * 100_000, " " * (MAX_CHARS + 1)),
        *(b"\xff", b"\xed\xa0\x80"),
    ],
)
def test_a_bundle_of_another_shape_is_a_model_error(text: str | bytes) -> None:
    with pytest.raises(ModelError, match="train again"):
        Bundle.from_json(text)


def test_a_bundle_serves_only_between_its_training_and_its_age() -> None:
    bundle().check_time(9000, max_age_s=3600)
    bundle().check_time(9000 + 3600, max_age_s=3600)
    with pytest.raises(ModelError, match="know the future"):
        bundle().check_time(8999, max_age_s=3600)
    with pytest.raises(StaleInputError, match="train again"):
        bundle().check_time(9000 + 3601, max_age_s=3600)


Change = Callable[[dict[str, Any]], object]
MODEL: Callable[[dict[str, Any]], dict[str, Any]] = lambda raw: raw["models"][0]  # noqa: E731
FORGED: dict[str, Change] = {
    "a folder above": lambda raw: MODEL(raw).update(horizon_s="../../1h"),
    "a horizon of nothing": lambda raw: MODEL(raw).update(horizon_s=0),
    "a horizon beyond reason": lambda raw: MODEL(raw).update(horizon_s=10**30),
    "a horizon twice": lambda raw: raw["models"].append(raw["models"][0]),
    "recency without its column": lambda raw: (
        MODEL(raw).update(learner="recency"),
        raw.update(columns=["tier"], spread={}),
    ),
    "no horizon": lambda raw: raw["models"].clear(),
    "a horizon of truth": lambda raw: MODEL(raw).update(horizon_s=True),
    "a time of no calendar": lambda raw: raw.update(until_s=10**15),
    "a label of no calendar": lambda raw: MODEL(raw).update(trained_until_s=-(10**15)),
    "no number": lambda raw: MODEL(raw)["calibration"].update(y=[0.1, float("nan")]),
    "a week of a day": lambda raw: MODEL(raw).update(week=[0.1] * 24),
    "a week out of proportion": lambda raw: MODEL(raw).update(week=[3.0] * 168),
    "a week without its columns": lambda raw: MODEL(raw).update(week=[0.1] * 168),
    "no probability": lambda raw: MODEL(raw)["calibration"].update(y=[0.1, 1.5]),
    "knots that fall": lambda raw: MODEL(raw)["calibration"].update(x=[1.0, 0.0]),
    "knots without a value": lambda raw: MODEL(raw)["calibration"].update(y=[0.5]),
    "no knots": lambda raw: MODEL(raw)["reads"].update(x=[], y=[]),
    "reads without end": lambda raw: MODEL(raw)["reads"].update(y=[0.0, 1e300]),
    "shares of other bins": lambda raw: MODEL(raw)["scores"].update(shares=[1.0]),
    "edges that fall": lambda raw: MODEL(raw)["scores"].update(edges=[0.5, 0.1]),
    "a column twice": lambda raw: raw.update(columns=["tier", "tier"]),
    "words for a number": lambda raw: raw["vocabulary"].update(recency_s=["a"]),
    "a word without words": lambda raw: raw["vocabulary"].clear(),
    "the spread of a stranger": lambda raw: raw["spread"].update(other=raw["spread"]["recency_s"]),
    "half a character": lambda raw: raw.update(region="\ud800"),
    "a cycle of nothing": lambda raw: raw["spec"].update(cycle_s=0),
    "no spec": lambda raw: raw.update(spec=None),
    "an order of no horizon": lambda raw: raw["order"].update(horizons_s=[]),
    "an order whose horizons fall": lambda raw: raw["order"].update(horizons_s=[10800, 5400]),
    "an order of a negative horizon": lambda raw: raw["order"].update(horizons_s=[-1, 5400]),
    "an order of a kind twice": lambda raw: raw["order"].update(kinds=["root", "root"]),
    "readers of an unknown kind": lambda raw: raw["order"].update(readers=["host"]),
    "an order of many kinds": lambda raw: raw["order"].update(kinds=[str(i) for i in range(33)]),
    "an order of no calendar": lambda raw: raw["order"].update(until_s=10**15),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_bundle_is_a_model_error(what: str) -> None:
    raw = json.loads(bundle().to_json())
    FORGED[what](raw)
    with pytest.raises(ModelError, match="cannot be read"):
        Bundle.from_json(json.dumps(raw))


@settings(deadline=None, max_examples=100, database=None)
@given(st.data())
def test_a_changed_bundle_is_a_bundle_or_a_model_error(data: st.DataObject) -> None:
    text = bundle().to_json()
    at, n_cut = data.draw(st.integers(0, len(text))), data.draw(st.sampled_from([0, 1, 5]))
    piece = data.draw(
        st.sampled_from(["-", "9" * 5000, "1e999", "NaN", "null", "[", "\\ud800", "\0", '"', "0."])
    )
    try:
        damaged = Bundle.from_json(text[:at] + piece + text[at + n_cut :])
    except ModelError as error:
        assert str(error).isprintable()
    else:
        damaged.check_time(damaged.until_s + 10**8, max_age_s=10**9)


def test_columns_that_features_do_not_make_are_refused() -> None:
    bundle().check(spec=SPEC, region="emea")
    with pytest.raises(ModelError, match="'did'"):
        dataclasses.replace(bundle(), columns=("did", "recency_s")).check(spec=SPEC, region="emea")


HOME = "https://mlflow.example.org:5000"


@pytest.mark.parametrize(
    "place", ["mlflow-artifacts:/1/a/artifacts", "mlflow-artifacts://mlflow.example.org:5000/1", "s3://b/1"]
)
def test_files_are_where_the_server_or_a_store_keeps_them(place: str) -> None:
    check_place(HOME, place)
    check_place("sqlite:///m.db", "file:///srv/artifacts")


@pytest.mark.parametrize(
    "place",
    [
        *(
            "mlflow-artifacts://evil.example/1",
            "mlflow-artifacts://mlflow.example.org/1",
            "http://169.254.0.1/x",
        ),
        *("https://mlflow.example.org:5000/x", "file:///etc", "/etc", "", "ftp://evil.example", "runs:/1"),
    ],
)
def test_a_place_that_would_get_the_login_or_our_folders_is_refused(place: str) -> None:
    with pytest.raises(ServiceError, match="as the place of a run's files"):
        check_place(HOME, place)


def test_a_call_without_an_end_is_left_alone() -> None:
    assert in_time(lambda: 3, within_s=5) == 3
    with pytest.raises(ZeroDivisionError):
        in_time(lambda: 1 // 0, within_s=5)
    began, end = time.monotonic(), threading.Event()
    with pytest.raises(TimeoutError, match="no end of an answer"):
        in_time(end.wait, within_s=0.1)
    end.set()
    assert time.monotonic() - began < 5


class Handler(http_answers.Answers):
    """Healthy; else it leads to `elsewhere`, or drips."""

    asked: list[str]
    drips = False

    def answer(self) -> None:
        self.asked.append(self.path)
        if self.path == "/health":
            return self.say(200)
        if self.drips:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            for _ in range(40):
                self.wfile.write(b" ")
                time.sleep(0.05)
            return None
        return self.say(302, location="/elsewhere")

    do_GET = do_POST = answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Handler, "asked", [], raising=False)
    with http_answers.answering(Handler) as url:
        yield url


def test_a_redirect_is_not_followed(server: str) -> None:
    with pytest.raises(ServiceError, match="MLflow at http"):
        connect(server, "", "x")
    assert "/elsewhere" not in Handler.asked and len(Handler.asked) > 1


TRUST = ["MLFLOW_TRACKING_SERVER_CERT_PATH", "MLFLOW_TRACKING_INSECURE_TLS"]


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_server_of_a_private_authority_is_believed_as_by_mlflow_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trust: str
) -> None:
    monkeypatch.setattr(Handler, "asked", [], raising=False)
    pem = certificate(tmp_path)
    with http_answers.answering(Handler, pem=pem) as url:
        with pytest.raises(ServiceError, match="does not answer"):
            connect(url, "", "x")
        assert not Handler.asked
        monkeypatch.setenv(trust, "true" if "INSECURE" in trust else str(pem))
        monkeypatch.setenv("MLFLOW_TRACKING_CLIENT_CERT_PATH", str(pem))
        with pytest.raises(ServiceError, match="MLflow at https"):
            connect(url, "", "x")
    assert Handler.asked[0] == "/health" and len(Handler.asked) > 1


def test_a_commit_is_recorded_of_a_checkout_of_ours_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment may be in a checkout of something else."""

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    monkeypatch.setattr(runs, "__file__", str(tmp_path / "runs.py"))
    (tmp_path / "runs.py").touch()
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message=theirs")
    assert set(runs.code_version()) == {"package_version"}
    git("add", "runs.py")
    assert len(runs.code_version()["git_sha"]) == 40


def test_an_answer_that_drips_ends_in_time(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_session, "_CALL_S", 0.3)
    monkeypatch.setattr(Handler, "drips", True)
    began = time.monotonic()
    with pytest.raises(ServiceError, match="no end of an answer"):
        connect(server, "", "x")
    assert time.monotonic() - began < 1.5
