# Everything that is done with this project, by name. Each target makes .venv by itself when it is needed.
#
#   make demo              the whole system on an embedded PostgreSQL, in one terminal
#   make test [ARGS=...]   the tests; ARGS reaches pytest
#   make check             formatting, lint, types, layers, migrations, spelling
#   make bench [ARGS=...]  measurements; ARGS reaches `samecommit bench`
#   make test-slow         what takes long        make faults   kills, partitions, clock jumps
#   make model             the protocol models    make docs     the pages, into docs/_build/html
#   make lock              requirements/dev.lock anew (UPGRADE=1: with newer versions)
#
# PYTHON=/path/to/python chooses the interpreter that .venv is made with.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
bin := .venv/bin
stamp := .venv/.samecommit

.PHONY: help demo test test-slow faults check lint format mypy pyright layers migrations spelling bench model docs lock clean

help:
	@sed -n 's/^#   //p' Makefile

$(stamp): pyproject.toml requirements/dev.lock scripts/venv
	@PYTHON='$(PYTHON)' scripts/venv
	@touch $@

demo: $(stamp)
	@$(bin)/samecommit demo $(ARGS)

test: $(stamp)
	@$(bin)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-slow: $(stamp)
	@$(bin)/python -m pytest -m slow $(ARGS)

faults: $(stamp)
	@$(bin)/python -m pytest -m faults -n auto --maxschedchunk 1 $(ARGS)

bench: $(stamp)
	@$(bin)/samecommit bench $(ARGS)

check: lint mypy pyright layers migrations spelling

lint: $(stamp)
	@$(bin)/ruff check --quiet
	@$(bin)/ruff format --check --quiet || { echo 'not formatted (run: make format)' >&2; exit 1; }

format: $(stamp)
	@$(bin)/ruff check --fix --quiet
	@$(bin)/ruff format

mypy: $(stamp)
	@$(bin)/mypy --no-error-summary

pyright: $(stamp)
	@out=$$($(bin)/pyright --warnings) || { echo "$$out"; exit 1; }

layers: $(stamp)
	@out=$$($(bin)/lint-imports --no-logo 2>&1) || { echo "$$out"; exit 1; }

migrations: $(stamp)
	@scripts/lint-migrations

spelling: $(stamp)
	@$(bin)/codespell

docs: $(stamp)
	@$(bin)/python -m sphinx --quiet --fail-on-warning --keep-going docs docs/_build/html
	@echo docs/_build/html/index.html

# Each model is checked exhaustively by spin; a model that finds an error leaves a trail and fails.
model:
	@command -v spin >/dev/null || { echo 'spin is not installed (on Debian and Ubuntu: apt install spin)' >&2; exit 1; }
	@scripts/model

lock: $(stamp)
	@command -v uv >/dev/null || { echo 'uv is not installed (pip install uv)' >&2; exit 1; }
	@uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11 \
	    $(if $(UPGRADE),--upgrade) --extra all --group dev pyproject.toml --output-file requirements/dev.lock

clean:
	@rm -rf .venv docs/_build dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
