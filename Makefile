# `make demo` runs the whole loop; `make test` installs what the tests need and runs them all.
# PYTHON=/path/to/python chooses the interpreter of the environment (3.11-3.13; 3.12 is tried first).

BIN := .venv/bin
OUT ?= demo-out
LOCAL ?= local-out
NOTEBOOKS ?= notebooks-out
DRILL_MINUTES ?= 10
# Servers that `make verify` builds and tests beside the system's; `make test` tests the newest that is there.
XROOTD_VERSIONS ?= 5.9.9 6.2.1
STAMP := .venv/.installed
# A file's tests stay in one process; each process has a Spark session and servers of its own.
APART := --dist loadfile --no-loadscope-reorder --numprocesses
SOURCES := setup.py $(wildcard conf/constraints/*.txt)

# What the first process compiles is for all workers of the tests, and for all commands that they start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo up down test lint check verify benchmarks leaderboard notebooks audit docs release clean
help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

install: $(STAMP)-core ## make .venv with what running needs

demo: $(STAMP)-core ## the whole loop on a generated month, ending in a summary and a page in demo-out/
	@conf/deploy/system.sh xrootd || echo "no XRootD server can be installed here: the demo pushes to a directory-backed cache"
	$(BIN)/cachecast demo --out $(OUT)

up: $(STAMP)-airflow ## Airflow, MLflow, placement, collector and an XCache on this machine, in local-out/; again: what is missing
	@conf/deploy/system.sh xrootd || echo "no XRootD server can be installed here: the cache is a folder"
	$(if $(HDFS),@conf/deploy/hdfs.sh)
	$(BIN)/cachecast up --out $(LOCAL) $(if $(TABLES),--tables $(TABLES)) $(if $(HDFS),--hdfs)

down: ## end what `make up` has started, and nothing else
	$(BIN)/cachecast down --out $(LOCAL)

test: $(STAMP)-dev ## everything, against real Spark, HDFS, Rucio, ActiveMQ, MLflow, XRootD, A-REX, Airflow and Chromium
	@conf/deploy/system.sh xrootd
	@conf/deploy/system.sh browser
	@conf/deploy/system.sh arc
	@conf/deploy/system.sh postgresql
	@conf/deploy/system.sh prometheus
	@conf/deploy/hdfs.sh
	@conf/deploy/rucio.sh
	$(BIN)/python -m pytest $(APART) 6  # tests of caches wait most of the time

lint: $(STAMP)-dev ## ruff, mypy strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## lint, and the tests that start no server
	$(BIN)/python -m pytest $(APART) 2 -m "not service"

verify: $(STAMP)-verify ## longer checks: the release, oracles on thousands of cases, fuzzing, fault drills, newer XRootD servers, notebooks, API pages, a real XCache beside its replay, benches
	$(MAKE) release
	$(BIN)/python bench/wheel.py dist/*.whl
	@conf/deploy/yarn.sh
	CACHECAST_THOROUGH=1 $(BIN)/python -m pytest -m "(thorough or hypothesis or verify) and not xrootd"
	$(BIN)/python bench/fuzz.py
	$(BIN)/python bench/fuzz_sources.py
	@conf/deploy/system.sh xrootd
	@for version in $(XROOTD_VERSIONS); do conf/deploy/xrootd.sh $$version || exit 1; done
	CACHECAST_THOROUGH=1 CACHECAST_XROOTD_VERSIONS="$$(xrootd -v 2>&1 | tr -d v) $(XROOTD_VERSIONS)" $(BIN)/python -m pytest -m xrootd
	@conf/deploy/system.sh postgresql
	@conf/deploy/hdfs.sh
	$(BIN)/python bench/chart.py
	@conf/deploy/system.sh containers
	$(BIN)/python bench/pods.py
	$(BIN)/python bench/drill.py --minutes $(DRILL_MINUTES)
	$(BIN)/python bench/notebooks.py
	$(BIN)/python bench/api_docs.py
	$(BIN)/python bench/calibrate.py
	$(BIN)/python bench/xcache_purge.py
	$(BIN)/python bench/xcache_purge.py --xrootd 6.2.1
	$(BIN)/python bench/drill_steward.py
	$(BIN)/python bench/drill_attacker.py --minutes $(DRILL_MINUTES)
	$(BIN)/python bench/drill_tokens.py --minutes 3 --token-minutes 0.8
	$(BIN)/python bench/two_hosts.py
	$(BIN)/python bench/steward_million.py
	$(BIN)/python bench/push.py
	$(BIN)/python bench/site_test.py --short
	$(BIN)/python bench/replay_speed.py --exact
	$(BIN)/python bench/replay_speed.py
	$(BIN)/python bench/feature_speed.py
	$(BIN)/python bench/readers.py 120000
	$(BIN)/python bench/scoring.py 20000
	$(BIN)/python bench/scoring.py train 50000
	$(BIN)/python bench/forecast.py
	$(BIN)/python bench/hosts.py
	$(BIN)/python bench/large_trace.py --accesses 300000
	$(BIN)/python bench/leaderboard.py --short
	$(BIN)/python bench/order_gaps.py --regions prague --worlds 101 --accesses 20000 --public
	$(BIN)/python bench/collect.py
	$(BIN)/python bench/plan.py
	@conf/deploy/system.sh bench
	$(BIN)/python bench/serve.py
	$(BIN)/python bench/dag_speed.py --strict
	$(BIN)/python bench/airflow_day.py

benchmarks: $(STAMP)-verify ## run the benches alone on this machine and rewrite docs/benchmarks.md; ONLY="replay plan": single sections
	@conf/deploy/system.sh xrootd
	@conf/deploy/system.sh postgresql
	@conf/deploy/hdfs.sh
	@conf/deploy/system.sh bench
	$(BIN)/python bench/page.py $(ONLY)

leaderboard: $(STAMP)-verify ## every policy on five generated regions, libCacheSim's beside ours
	$(BIN)/python bench/leaderboard.py

docs: $(STAMP)-verify ## the documentation as a site with search, in build/docs, with the API's pages; look: python -m http.server -d build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python bench/api_docs.py --out build/docs/api

release: docs ## what a tag publishes, in dist/ and checked: wheel, sdist, chart, site, and an image where one can be built
	-@conf/deploy/helm.sh
	$(BIN)/python bench/release.py

notebooks: $(STAMP)-notebooks ## JupyterLab on copies of the notebooks of docs/examples, in notebooks-out/
	@mkdir -p $(NOTEBOOKS)
	@for one in docs/examples/*.ipynb; do test -e "$(NOTEBOOKS)/$${one##*/}" || cp "$$one" $(NOTEBOOKS)/; done
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) $(NOTEBOOKS)

audit: $(STAMP)-verify ## known holes in what is pinned; needs PyPI's own JSON, which a mirror may lack
	@version=$$($(BIN)/python -c 'import sys; print("py%d%d" % sys.version_info[:2])'); \
	$(BIN)/pip-audit --strict --disable-pip --no-deps --requirement conf/constraints/$$version.txt

clean: ## remove the environment and what the demo made
	rm -rf .venv demo-out local-out notebooks-out build dist *.egg-info

.venv/bin/python:
	@conf/deploy/system.sh core
	@python="$${PYTHON:-$$(conf/deploy/find-python.sh)}"; \
	test -n "$$python" || { echo "no Python 3.11-3.13 with venv was found; install one, or set PYTHON" >&2; exit 1; }; \
	"$$python" -m venv .venv

$(STAMP)-core: .venv/bin/python $(SOURCES)
	@conf/deploy/pip-install.sh '.[controller]'
	@touch $@

$(STAMP)-airflow: .venv/bin/python $(SOURCES)
	@conf/deploy/pip-install.sh '.[airflow]'
	@touch $@ $(STAMP)-core

$(STAMP)-dev: .venv/bin/python $(SOURCES)
	@conf/deploy/pip-install.sh '.[dev,airflow]'
	@touch $@ $(STAMP)-core $(STAMP)-airflow

$(STAMP)-notebooks: .venv/bin/python $(SOURCES)
	@conf/deploy/pip-install.sh '.[controller,notebooks]'
	@touch $@ $(STAMP)-core

$(STAMP)-verify: .venv/bin/python $(SOURCES)
	@conf/deploy/pip-install.sh '.[dev,airflow,verify]'
	@touch $@ $(STAMP)-core $(STAMP)-airflow $(STAMP)-dev
