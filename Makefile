# `make` alone lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
# Three processes: tests on real servers wait for much of their time, and of those without servers, too, one works
# while another waits. Each process has servers of its own, which take processor time also while they are idle: on
# two slow cores, those of four processes leave too little to the tests.
# A process that dies ends with the tests that it had: what comes after one that killed it would be killed, too.
PYTEST_FLAGS ?= --numprocesses 3 --dist loadscope --no-loadscope-reorder --max-worker-restart 0
# What several processes at once make of the limit on the start of a stack.
export RTOLAP_TEST_SLOWNESS ?= 2

SEEDS ?= 10

# Each process of the stack and of the tests imports hundreds of modules: they are compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-unit test-integration soak lint types format reference docs lock bench wheel otlp-collector clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Virtual environment, locked dependencies, Kafka's jars, archives of Java classes, the page in Airflow
	@scripts/setup

demo: setup ## Start the stack, replay real events, compare answers (EXIT=1: stop by itself, exit code tells; FRESH=1: throw an earlier stack's data away)
	@$(BIN)/rtolap demo $(if $(filter 1,$(EXIT)),--exit) $(if $(filter 1,$(FRESH)),--fresh)

test: setup ## Everything: unit, contract, integration on the real servers, end-to-end recount
	@$(BIN)/pytest $(PYTEST_FLAGS) tests

test-unit: setup ## The quick part, without servers
	@$(BIN)/pytest -m "not integration and not e2e" --ignore tests/integration $(PYTEST_FLAGS) tests

test-integration: setup ## The part on the real servers
	@$(BIN)/pytest -m "integration or e2e" $(PYTEST_FLAGS) tests

soak: setup ## All that is drawn from a seed, with SEEDS=10 times as many seeds and inputs as `test` has, for hours
	@RTOLAP_SEEDS=$(SEEDS) $(BIN)/pytest -m seeded --timeout 0 $(PYTEST_FLAGS) tests

otlp-collector: ## OpenTelemetry's collector, out of Go's modules, for a test that is left out without it
	@cd tests/support/telemetry/otlp_collector && CGO_ENABLED=0 go build -o "$${RTOLAP_CACHE_DIR:-$(CURDIR)/.cache}/otlp-collector/collector" .

lint: setup ## Format, style, types and the arrows between the rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory types
	$(BIN)/lint-imports

types: ## Types: strict of all that is no test, and of tests those of pyproject.toml; of the page, if npm is there
	@if command -v npm >/dev/null && [ -d ui/node_modules ]; then cd ui && npm run --silent check; fi
	$(BIN)/mypy plugins/rtolap plugins/rtolap_plugin.py $(wildcard spark_jobs/*.py) dags benchmarks tests

format: setup ## Format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: setup ## Write what docs/reference.md, docs/sql.md, docs/operations/metrics.md and docs/modules/ list out of the code
	@$(BIN)/python -m tests.support.reference
	@$(BIN)/python -m tests.support.pages.modules

docs: setup ## The documentation as a site with a search, .cache/site/index.html; a link that leads nowhere ends it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "docs: .cache/site/index.html"

lock: setup ## Resolve the dependencies again into requirements.lock
	$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --generate-hashes --no-annotate --no-header \
	    -o requirements.lock

bench: setup ## Ingest and freshness
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.freshness

wheel: setup ## Build the wheel into dist/
	$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python

clean: ## Stop the stack and remove everything that was made, except .cache
	@if [ -x $(BIN)/rtolap ] && [ -f .stack/stack.json ]; then $(BIN)/rtolap stack down; fi
	rm -rf .venv .stack dist build ui/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
