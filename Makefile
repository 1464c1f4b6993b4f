# make demo   builds the rockmill command and lets it compact a database next to RocksDB
# make test   every check: format, lints, docs, unit, property and end-to-end tests, short fuzz runs
# make build  the release build alone
# make fuzz TARGET=sst_table SECONDS=600   one long fuzz run
#
# Whatever links RocksDB is built in the release profile and for the whole workspace, lints and docs
# included, so that RocksDB (some eleven minutes of C++ on two cores) is compiled once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export PATH := $(PATH):$(HOME)/.cargo/bin

RELEASE_DIR = $${CARGO_TARGET_DIR:-target}/release
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
SMOKE_SECONDS := 20
SECONDS := 600
# Crates that do not link RocksDB: their tests also run with debug assertions.
LIGHT_CRATES := -p rockmill-format -p rockmill-core -p rockmill-cpu -p rockmill-engine

.PHONY: demo test build setup lint test-debug test-release fuzz fuzz-smoke
.NOTPARALLEL:

demo: build
	$(RELEASE_DIR)/rockmill demo

build: setup
	cargo build --locked --release --workspace

setup:
	@scripts/setup.sh

test: lint test-debug test-release fuzz-smoke

lint: setup
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --locked --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --locked --release --no-deps --workspace

test-debug: setup
	cargo test --locked $(LIGHT_CRATES)

test-release: setup
	cargo test --locked --release --workspace

fuzz-smoke: setup
	scripts/fuzz.sh lint
	for target in $(FUZZ_TARGETS); do scripts/fuzz.sh $$target $(SMOKE_SECONDS); done

fuzz: setup
	@[ -n "$(TARGET)" ] || { echo "usage: make fuzz TARGET=name SECONDS=n; names: $(FUZZ_TARGETS)" >&2; exit 2; }
	scripts/fuzz.sh $(TARGET) $(SECONDS)
