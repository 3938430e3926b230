# `make help` lists what there is. Each target installs what it needs and says so.

SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
WEIR := $(TARGET_DIR)/release/weir
QUICK := $(TARGET_DIR)/quick/weir
CONFIG ?= examples/quickstart.toml
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: help build quick install uninstall run demo test bench lint generated image packages tools

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

build: ## the release binary
	@scripts/install-tools.sh build
	$(CARGO) build --release -p weir

quick: ## the same program, not optimized and built sooner: what `make run` and `make demo` start
	@scripts/install-tools.sh build
	$(CARGO) build --profile quick -p weir

install: ## put what `make build` made below PREFIX (/usr/local) and DESTDIR, with units and configuration; starts nothing
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh install "$(WEIR)"

uninstall: ## remove what `make install` put there, but not configuration that was changed
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh uninstall

run: quick ## start the daemon with examples/quickstart.toml (CONFIG=FILE for another)
	@scripts/run.sh $(QUICK) $(CONFIG)

demo: quick ## generator, relay and two verifying receivers for 10 s, and what became of every datagram
	@scripts/demo.sh $(QUICK)

test: ## every test; what the machine lacks is skipped with a reason (REQUIRE_ALL=1: fails)
	@scripts/test.sh

bench: build ## measure against the least-work C loop and socat (see bench/)
	@bench/run.sh

lint: ## formatting, clippy, docs and shell scripts, warnings as errors
	@scripts/install-tools.sh build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --features weir/all-sinks -- -D warnings
	$(CARGO) clippy --package weir --all-targets --no-default-features -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --no-deps --workspace --features weir/all-sinks
	@scripts/test-scripts.sh

generated: ## write every file again that is generated from code: schemas, tables, references
	UPDATE_GENERATED=1 $(CARGO) test --workspace --features weir/all-sinks --tests generated

image: ## the container image as an OCI archive, assembled without a container engine
	@scripts/build-image.sh

packages: ## Debian package, RPM, archive, bill of materials and checksums, in target/packages
	@scripts/build-packages.sh

tools: ## install everything that the tests use
	@scripts/install-tools.sh fuzz
