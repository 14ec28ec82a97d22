# Two commands for newcomers: `make demo` and `make test`.
#
#   make demo                  the demonstration; installs what it needs, and no more
#   make demo KAFKA=real       leaders elected by Kafka: a real broker, or a mock (embedded)
#   make demo OUTBOX=1         an outbox: messages for Kafka, in order
#   make demo SINK=opensearch  the copy in a real server: opensearch, redis, kafka or postgres
#   make test [ARGS=…]         all tests; ARGS go to pytest, e.g. ARGS="-m unit" or ARGS="-k mark -x"
#   make soak [MINUTES=60]     random faults for so long, then `make points`; writes docs/reliability.md
#   make chaos [MINUTES=10]    the random faults alone; SEED=7 draws the same ones again
#   make points                every fault point alone, tests that take minutes, the SQL on all versions of Postgres
#   make bench                 all benchmarks, in half an hour; writes docs/performance.md and bench/results.md
#   make bench ARGS=spark      what Spark does; writes docs/performance-spark.md
#   make contrib [ARGS=…]      the sinks of contrib/, each on a real server
#   make lowest [ARGS=…]       tests with the lowest versions that pyproject.toml allows
#   make check                 format, lint, types, layers
#   make format                put the code into shape
#   make reference             the pages that are made from the code: commands, SQL, configuration, …
#   make docs                  these pages, and the documentation as a site, in .site; `make docs-serve` shows it
#   make docs-versions [URL=…] the same for each released minor version and this checkout, with a selector; in .site
#   make lock                  renew requirements.lock from pyproject.toml
#   make release-check         build what a release publishes, twice, and try it on each Python; with SBOM and licenses, in dist

SHELL := /bin/bash
BIN := .venv/bin
# Without bytecode each of the many processes that tests and demo start would compile its libraries anew.
unexport PYTHONDONTWRITEBYTECODE
# Tests wait for time-outs and servers more than they compute, so more of them than there are cores. Those that share
# a server that is slow to start, or a file, are run by one process (tests/conftest.py).
JOBS := $(shell expr $$(nproc 2>/dev/null || echo 2) + 2)
CHAOS = $(BIN)/python -m tests.crash.chaos $(if $(SEED),--seed $(SEED))

.PHONY: help demo test contrib lowest soak chaos points bench check format reference docs docs-serve docs-versions lock venv clean release-check

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

.venv/installed: requirements.lock pyproject.toml .ci/venv
	@bash .ci/venv

venv: .venv/installed

# Java is large, so only a server that needs it brings it.
WITH_JAVA = $(filter real,$(KAFKA)) $(filter opensearch kafka,$(SINK))
DEMO_EXTRAS = demo $(if $(strip $(WITH_JAVA)),embedded) $(filter opensearch redis,$(SINK))

demo:
	@bash .ci/venv $(strip $(DEMO_EXTRAS))
	@$(BIN)/pytube demo $(if $(KAFKA),--kafka $(KAFKA)) $(if $(ELECTION),--election $(ELECTION)) $(if $(SINK),--sink $(SINK)) $(if $(OUTBOX),--outbox)

test: venv
	@bash .ci/system
	@$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadscope --no-loadscope-reorder $(ARGS)

contrib: venv
	@bash .ci/contrib $(ARGS)

lowest: venv
	@bash .ci/lowest $(ARGS)

# What takes minutes alone takes more of them where other work has the machine.
soak points: export PYTUBE_TEST_LIMIT ?= 300

soak: venv
	@$(CHAOS) --minutes $(or $(MINUTES),60) --report docs/reliability.md
	@$(BIN)/python -m pytest -m soak $(ARGS)

chaos: venv
	@$(CHAOS) --minutes $(or $(MINUTES),10)

points: venv
	@$(BIN)/python -m pytest -m soak $(ARGS)

bench: venv
	@$(BIN)/python -m bench $(ARGS)

check: venv
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/zensical build --strict --clean

format: venv
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

reference: venv
	@$(BIN)/python -m tests.docs.reference

docs: reference
	@$(BIN)/zensical build --strict --clean

docs-serve: venv
	@$(BIN)/zensical serve

# From the tags, so that nothing but them has to be kept. URL is where the site will be.
docs-versions: venv
	@$(BIN)/python -m tests.docs.versions $(URL)

# Without header and annotations, so that the file names no host and is the same everywhere.
# UPGRADE=1 takes newer versions; otherwise only what pyproject.toml asks for changes.
lock:
	@test -x $(BIN)/uv || bash .ci/venv
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --all-extras \
		--group pyproject.toml:dev --no-header --no-annotate --no-emit-index-url \
		$(if $(UPGRADE),--upgrade) --output-file requirements.lock pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate \
		--no-emit-index-url --group pyproject.toml:release $(if $(UPGRADE),--upgrade) --output-file .ci/release.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate \
		--no-emit-index-url --no-emit-package pytube-pg $(if $(UPGRADE),--upgrade) --output-file contrib/requirements.lock \
		$(foreach one,$(wildcard contrib/pytube-*/pyproject.toml),$(one) --group $(one):test)
	@! grep -nE 'https?://' requirements.lock .ci/release.lock contrib/requirements.lock

release-check:
	@bash .ci/venv demo
	@VERSION=$(VERSION) bash .ci/release

clean:
	rm -rf .venv .venv-contrib .venv-lowest dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .demo .site .cache
