# Everything here only calls a script; each script says at its top what it does.
# ARGS are handed on: make test ARGS="tests/store -k damaged"

ARGS ?=
ROOM ?=
.DEFAULT_GOAL := help
.PHONY: help setup demo test quick check bench smoke docs pages proto lock clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 8

setup: ## install what Relive needs on this machine (Debian, as root); takes seconds when all is there
	@bash scripts/setup.sh

demo: setup ## the main job on a real service: run, commit, fail, restore, replay
	@.venv/bin/python examples/payments/demo.py $(ARGS)

test: setup ## the whole test suite
	@bash scripts/test.sh $(ARGS)

quick: ## tests of one room (ROOM="store agent/commits") or of those that were changed, in under a minute
	@bash scripts/quick.sh $(ROOM)

check: setup ## lint, types, import layers, generated pages, docs build
	@bash scripts/check.sh

bench: setup ## the measurements of benchmarks/
	@bash scripts/bench.sh $(ARGS)

smoke: setup ## each benchmark once in its smallest form
	@.venv/bin/pytest -n0 -m 'not soak' tests/benchmarks $(ARGS)

docs: setup pages ## the manual, built into build/site
	@bash scripts/docs.sh

pages: setup ## renew the pages of the manual that follow from the code
	@.venv/bin/python scripts/generate_docs.py

proto: setup ## renew the modules that follow from the .proto files
	@bash scripts/proto.sh

lock: setup ## renew requirements.lock from pyproject.toml
	@bash scripts/lock.sh

clean: ## delete what was built in this folder (not the commits, which RELIVE_HOME holds)
	@rm -rf build dist .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
