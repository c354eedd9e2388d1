# Every target makes what it needs: .venv, the locked packages, and missing system packages.
# Stamp files in .venv/stamps remember what is done, so a second start costs next to nothing.

PYTHON ?= python3
DIST ?= dist
PYTEST_OPTIONS ?=
# Which parts of `make bench-pow` to run, by default all.
PARTS ?=
LOCK_OPTIONS ?=
BENCH_OPTIONS ?=

# What each lock file covers; a further extra is one more word here.
RUN_EXTRAS := server client
TEST_EXTRAS := $(RUN_EXTRAS) spark

# System packages, as command:package; only those whose command is missing are installed.
RUN_NEEDS := gpg:gnupg
SPARK_NEEDS := $(RUN_NEEDS) java:default-jre-headless
TEST_NEEDS := $(RUN_NEEDS) git:git zip:zip unzip:unzip strace:strace knotd:knot tor:tor microsocks:microsocks \
	java:default-jre-headless ip:iproute2 nft:nftables faketime:faketime \
	unbound:unbound
# What a benchmark prints beside our own figures.
BENCH_NEEDS := redis-server:redis-server
# The compiler makes the proof of work fast; without it the search is pure Python. Headers have
# no command of their own, so they go by the one that comes with them.
BUILD_WANTS := cc:gcc cc:libc6-dev python3-config:python3-dev

VENV := .venv
STAMPS := $(VENV)/stamps
BIN := $(VENV)/bin
KERNEL := $(wildcard pow/sealmail_pow/kernel/*.[ch])
BENCHMARKS := $(sort $(wildcard bench/bench_*.py))

# The cache lives and dies with the environment, so whoever has the one can install offline from
# the other. Python itself is never downloaded.
export UV_CACHE_DIR := $(CURDIR)/$(VENV)/cache
export UV_PYTHON_DOWNLOADS := never
# Without bytecode every program that is started compiles all that it imports: half a second each.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-header $(LOCK_OPTIONS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install install-spark run demo test test-long check bench bench-pow bench-server bench-pair bench-client bench-dht bench-spark screenshots lock dist dist-spark clean run-needs test-needs

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: run-needs $(STAMPS)/run ## set up sealmail and sealmaild in .venv/bin
	@echo "sealmail and sealmaild are in $(CURDIR)/$(BIN)"

install-spark: $(STAMPS)/test ## the same with sealmail-audit, which needs Java and some 700 MB
	@.ci/system-packages $(SPARK_NEEDS)
	@echo "sealmail, sealmaild and sealmail-audit are in $(CURDIR)/$(BIN)"

run: run-needs $(STAMPS)/run ## deliver a first mail, then keep the servers up until Ctrl-C
	@$(BIN)/python bench/journey.py --keep

demo: run-needs $(STAMPS)/run ## print the journey of one mail step by step, then exit
	@$(BIN)/python bench/journey.py

test: test-needs check ## run the checks, then every test but the long ones
	$(BIN)/python -m pytest -m "not long" $(PYTEST_OPTIONS)

test-long: test-needs $(STAMPS)/test ## run the tests that take minutes, and all schedules of pairs
	@.ci/system-packages chromium:chromium
	@.ci/i2pd $(VENV)/i2pd
	$(BIN)/python -m pytest -m "long or schedule" $(PYTEST_OPTIONS)

check: $(STAMPS)/test ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: test-needs $(STAMPS)/test ## run every benchmark in turn
	@.ci/system-packages $(BENCH_NEEDS)
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python "$$script"; done

bench-pow: test-needs $(STAMPS)/test ## measure the proof of work; best on a machine at rest
	@$(BIN)/python bench/bench_pow.py $(PARTS)

bench-server: test-needs $(STAMPS)/test ## measure the server against what it is made of
	@.ci/system-packages $(BENCH_NEEDS)
	@$(BIN)/python bench/bench_server.py

bench-pair: test-needs $(STAMPS)/test ## measure draining the queue to a partner against STORE
	@$(BIN)/python bench/bench_pair.py

bench-client: test-needs $(STAMPS)/test ## measure sealing, sending and fetching against their parts
	@$(BIN)/python bench/bench_client.py

bench-spark: test-needs $(STAMPS)/test ## measure the audits with one and two cores against plain processes
	@$(BIN)/python bench/bench_spark.py $(BENCH_OPTIONS)

bench-dht: test-needs $(STAMPS)/test ## measure look-ups in the DHT by the number of nodes
	@$(BIN)/python bench/bench_dht.py

lock: $(STAMPS)/uv ## pin what pyproject.toml asks for; LOCK_OPTIONS=--upgrade takes newer versions
	$(COMPILE) pyproject.toml $(TEST_EXTRAS:%=--extra %) --group test --output-file requirements/test.txt
	$(COMPILE) pyproject.toml $(RUN_EXTRAS:%=--extra %) --group build --constraint requirements/test.txt \
		--no-annotate --output-file requirements/run.txt
	$(COMPILE) pyproject.toml --extra spark --constraint requirements/test.txt --no-annotate \
		--no-emit-package pyspark --no-emit-package py4j --output-file requirements/spark.txt
	$(COMPILE) --group uv --output-file requirements/uv.txt

dist: $(STAMPS)/run ## build the wheel and the source archive in dist/
	@rm -f "$(DIST)"/sealmail-*
	$(BIN)/uv build --quiet --offline --no-build-isolation --no-create-gitignore \
		--python $(BIN)/python --out-dir "$(DIST)"

dist-spark: dist $(STAMPS)/test ## pack what audits need on a cluster into dist/
	@$(BIN)/python -m sealmail_spark.packing "$(DIST)"
	@rm -rf build/spark
	@$(BIN)/uv venv --quiet --relocatable --python $(BIN)/python build/spark
	@$(BIN)/uv pip install --quiet --python build/spark/bin/python --no-deps --require-hashes \
		-r requirements/spark.txt
	@$(BIN)/uv pip install --quiet --python build/spark/bin/python --no-deps --offline "$(DIST)"/sealmail-*.whl
	@tar -czf "$(DIST)/sealmail-spark-env.tar.gz" -C build/spark .
	@ls "$(DIST)"

screenshots: test-needs $(STAMPS)/test ## render the pages of a report to build/screenshots
	@.ci/system-packages chromium:chromium pdftoppm:poppler-utils
	@$(BIN)/python bench/screenshots.py build/screenshots

clean: ## remove everything that make made
	rm -rf $(VENV) $(DIST) build .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -f pow/sealmail_pow/_native.*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

run-needs:
	@.ci/system-packages $(RUN_NEEDS)

test-needs:
	@.ci/system-packages $(TEST_NEEDS)

$(STAMPS)/venv:
	@.ci/new-venv "$(PYTHON)" $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/uv: requirements/uv.txt $(STAMPS)/venv
	@echo "installing uv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(STAMPS)/compiler: $(STAMPS)/venv
	@.ci/system-packages --wanted $(BUILD_WANTS)
	@touch $@

# The project's own build needs hatchling, which is locked too: nothing unpinned is fetched.
$(STAMPS)/run: requirements/run.txt pyproject.toml hatch_build.py $(KERNEL) $(STAMPS)/uv $(STAMPS)/compiler
	@echo "installing what running needs"
	@$(INSTALL) --require-hashes -r $<
	@$(INSTALL) --offline --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c 'import sys, sealmail_pow as pow; pow.IMPLEMENTATION == "native" or sys.exit(print("sealmail: \
	the proof of work was not compiled, so stamps take some fifty times as long; for the fast one: \
	apt-get install gcc libc6-dev python3-dev, then make clean and set up again"))'
	@touch $@

$(STAMPS)/test: requirements/test.txt $(STAMPS)/run
	@echo "installing Spark, and what testing needs"
	@$(INSTALL) --require-hashes -r $<
	@touch $@
