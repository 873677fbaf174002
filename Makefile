# `make check` after every change, `make test` before a merge, `make test-long` at night.
# Each makes .venv, installs what it needs, and does the whole job.
PYTHON ?=
BIN := .venv/bin
ARGS ?=

.PHONY: demo wheel check test test-long test-live docs bench clean

demo: .venv/.ready-demo $(if $(findstring --serve,$(ARGS)),.venv/.ready-server)
	@$(BIN)/lib demo $(ARGS)

check: .venv/.ready-dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check

test: .venv/.ready-dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/gate

test-long: .venv/.ready-dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/test-long $(ARGS)

test-live: .venv/.ready-dev
	@scripts/test-live $(ARGS)

wheel: | .venv/bin/python
	@$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist .

docs: .venv/.ready-dev
	@$(BIN)/zensical build --strict

bench: .venv/.ready-dev
	@scripts/bench $(ARGS)

clean:
	rm -rf .venv .peers .live .pythons .lib site

.venv/bin/python:
	@scripts/make-venv $(PYTHON)

.venv/.ready-demo: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing lib into .venv (once) ..."
	@$(BIN)/python -m pip install -q -c constraints.txt -e .
	@touch $@

.venv/.ready-server: pyproject.toml packages/lib-server/pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing lib-server into .venv (once) ..."
	@$(BIN)/python -m pip install -q -c constraints.txt -e . -e packages/lib-server
	@touch $@

.venv/.ready-dev: pyproject.toml packages/lib-server/pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing lib and its development tools into .venv (once) ..."
	@$(BIN)/python -m pip install -q -c constraints.txt -e . -e packages/lib-server --group dev
	@touch $@ .venv/.ready-demo .venv/.ready-server
