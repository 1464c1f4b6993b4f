# make demo   builds the rockmill command and lets it compact a database next to RocksDB
# make check  format, lints and tests of the crates without RocksDB, with a tenth of the random cases
# make test   every check: format, lints, docs, unit, property and end-to-end tests, short fuzz runs
# make build  the release build alone
# make install PREFIX=/usr/local   the command, and the libraries and headers for C and C++, after make build
# make release FOLDER=out   a tarball and a Debian package of the same, built in the profile for files that are shipped
# make wheel   the wheel for Python in dist/, in the same profile
# make test-long   what does not fit into make test: hours
# make fuzz TARGET=sst_table SECONDS=600   one long fuzz run
#
# RocksDB itself (a quarter of an hour of C++ on two cores) is compiled once, by scripts/rocksdb.sh, into
# the user's cache folder, and where no CUDA toolkit is installed the build of crates/cuda fetches a
# compiler there. Whatever links it is built in the release profile, lints and docs included.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export PATH := $(PATH):$(HOME)/.cargo/bin

ROCKSDB := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rockmill/rocksdb/0.49.0
# A RocksDB 11.12 of one's own: ROCKSDB_LIB_DIR names the folder of its library, ROCKSDB_INCLUDE_DIR that of its headers,
# and ROCKSDB_STATIC=1 links it statically.
OWN_ROCKSDB := $(filter-out $(ROCKSDB)/lib,$(ROCKSDB_LIB_DIR))
ifeq ($(OWN_ROCKSDB),)
export ROCKSDB_LIB_DIR := $(ROCKSDB)/lib
export ROCKSDB_INCLUDE_DIR := $(ROCKSDB)/include
export ROCKSDB_STATIC := 1
endif

# The package for Python needs no interpreter. Without this, its build would be repeated whenever PATH changes.
export PYO3_NO_PYTHON := 1

# Not cargo's own: where cargo has compiled RocksDB itself, the linker finds that before the one here.
export CARGO_TARGET_DIR ?= $(CURDIR)/target/make

# Each test that is skipped adds a line.
export ROCKMILL_SKIPS := $(abspath $(CARGO_TARGET_DIR))/skipped.txt

FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
SMOKE_SECONDS := 20
SECONDS := 600
# Crates that do not link RocksDB: their tests also run with debug assertions.
LIGHT_CRATES := $(addprefix -p rockmill-,codec sysio format core cpu cuda storage snapshot exec testkit compaction capi terminal)

.DEFAULT_GOAL := build

# For cargo by hand where .cargo/config.toml does not reach: eval "$(make -s env)"
env:
	@echo export ROCKSDB_LIB_DIR=$(ROCKSDB_LIB_DIR) ROCKSDB_INCLUDE_DIR=$(ROCKSDB_INCLUDE_DIR) ROCKSDB_STATIC=1 \
	    PYO3_NO_PYTHON=1 CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)

SMOKES := $(addprefix fuzz-smoke-,$(FUZZ_TARGETS))

.PHONY: env boundary check demo install jar java test-java test-jars test-header test-db-stress test-go test-kafka test-flink test-spark wheel test-python test-python-long release test test-long test-matrix test-many test-profiles test-reproducible test-stress test-distributed test-distributed-long test-ballista clean-cache forget-skips show-skips build setup lint test-debug test-release test-sanitized test-kernels fuzz fuzz-lint fuzz-smoke $(SMOKES)
.NOTPARALLEL:

# Seconds, once it is compiled: no RocksDB, no CUDA compiler, and a tenth of each test's random cases. Tests of capi link
# RocksDB, so they are left to test-debug.
check:
	@scripts/setup.sh
	cargo fmt --all --check
	cargo clippy --locked $(LIGHT_CRATES) --no-default-features --all-targets -- -D warnings
	ROCKMILL_CASES=$(or $(ROCKMILL_CASES),10%) PROPTEST_CASES=$(or $(PROPTEST_CASES),26) \
	    cargo test --locked $(subst -p rockmill-capi ,,$(LIGHT_CRATES)) --no-default-features

# The command alone, without SQL. Without a GPU and a CUDA compiler, it also leaves out kernels for GPUs.
# Cargo shows nothing of what a build script does. So the compiler is fetched before, and its time is told.
define TELL_KERNELS
if [ "$${NVCC-}" != none ]; then [ "$${CARGO_NET_OFFLINE-}" = true ] || scripts/nvcc.sh || true; \
    echo "kernels for six GPU architectures take some minutes where they are new (ROCKMILL_CUDA_ARCH=90: one)" >&2; fi
endef
HAS_CUDA := $(or $(wildcard /dev/nvidiactl),$(NVCC),$(CUDA_HOME),$(CUDA_PATH),$(wildcard /usr/local/cuda/bin/nvcc))
demo: setup
	$(if $(HAS_CUDA),@$(TELL_KERNELS),@echo "no GPU and no CUDA toolkit are here: the demo is built without the GPU backend; 'make build' has it" >&2)
	$(if $(HAS_CUDA),scripts/tell_kernels.sh) cargo build --locked --release -p rockmill-cli --no-default-features $(if $(HAS_CUDA),--features cuda)
	$(CARGO_TARGET_DIR)/release/rockmill demo

build: setup
	@$(TELL_KERNELS)
	scripts/tell_kernels.sh cargo build --locked --release --workspace

# It builds nothing, so that it can run as root. A relative PREFIX begins where the user is, also with make -C.
install:
	@[ -n "$(PREFIX)" ] || { echo "usage: make install PREFIX=/usr/local" >&2; exit 2; }
	cd "$(or $(PWD),.)" && "$(CURDIR)/scripts/install.sh" "$(PREFIX)"

# The jar for Java, and its tests with stock RocksJava from Maven Central; VERSIONS="9.7.3 10.4.2" are others than the
# usual three, and VERSIONS=all are all.
JAVA := $(CARGO_TARGET_DIR)/java
ALL_JAVA = $(shell sed -n 's/^\([0-9.]*\) .*/\1/p' doors/java/versions.txt) 8.1.1.1 frocksdb-8.10.0-ververica-1.0 10.10.1 10.10.1.1 11.0.4 11.1.1 11.1.2 11.8.1
java: jar
	doors/java/test.sh $(JAVA) $(if $(filter all,$(VERSIONS)),$(ALL_JAVA),$(VERSIONS))

jar: setup
	scripts/setup.sh java
	cargo build --locked --release -p rockmill-capi
	doors/java/build.sh $(JAVA) $(CARGO_TARGET_DIR)/release

# Every RocksJava that the jar serves. A failing one does not stop the others.
test-jars: jar
	@failed=; for version in $(or $(VERSIONS),$(ALL_JAVA)); do \
	    ROCKMILL_CASES=$(or $(ROCKMILL_CASES),1000) doors/java/test.sh $(JAVA) $$version || failed="$$failed $$version"; \
	done; [ -z "$$failed" ] || { echo "test-jars: these have failed:$$failed" >&2; exit 1; }

# C++ programs with the RocksDB of each RocksJava before 10, through the header.
test-header: jar
	doors/java/cpp.sh $(JAVA) $(VERSIONS)

# RocksDB's own stress test, of versions before 10.
test-db-stress: build
	scripts/setup.sh stress
	scripts/db-stress.sh $(CARGO_TARGET_DIR)/db-stress $(or $(ROCKMILL_SECONDS),3600) $(VERSIONS)

# The module for Go, with the RocksDB of a stock RocksJava.
test-go: jar
	scripts/setup.sh go
	doors/go/test.sh $(CARGO_TARGET_DIR)/go $(CARGO_TARGET_DIR)/release

# Real systems, killed and restored, with and without Rockmill; VERSIONS="4.1.1" are others than the usual ones.
test-kafka test-flink test-spark: test-%: jar
	scripts/setup.sh systems
	doors/java/systems/$*.sh $(JAVA) $(VERSIONS)

# The jar for the usual three alone, with the library that the tests of the C door have built. Another build would compile
# dependencies anew, with other features.
test-java: setup
	scripts/setup.sh java
	cargo test --locked --release --workspace --no-run --test doors
	ROCKMILL_JAVA_SHIMS="7.9.2 9.7.3" doors/java/build.sh $(JAVA)-test $(CARGO_TARGET_DIR)/release/deps
	ROCKMILL_CASES=$(or $(ROCKMILL_CASES),10) doors/java/test.sh $(JAVA)-test

# Python's package with the library that cargo's tests have built, read by the libraries that its users have.
test-python: setup
	cargo test --locked --release --workspace --no-run --test exports
	doors/python/test.sh $(CARGO_TARGET_DIR)/python $(CARGO_TARGET_DIR)/release/deps/librockmill_python.so

# The wheel, installed with the Pythons of other systems.
test-python-long: wheel
	doors/python/systems.sh dist/rockmill-*.whl

# The wheel, for CPython from 3.10 on.
wheel: setup
	doors/python/wheel.sh $(CARGO_TARGET_DIR) $(CURDIR)/dist

# A tarball and a Debian package of what make install installs, in FOLDER.
release: setup
	cd "$(or $(PWD),.)" && "$(CURDIR)/scripts/release.sh" "$(or $(FOLDER),.)"

setup:
	@scripts/setup.sh
	$(if $(OWN_ROCKSDB),,@scripts/rocksdb.sh $(ROCKSDB) $(CARGO_TARGET_DIR))
	$(if $(OWN_ROCKSDB),,@scripts/cargo-config.sh $(ROCKSDB) $(CARGO_TARGET_DIR))

# Each part on its own, so that its time can be told.
test: forget-skips
	@scripts/test.sh lint test-kernels test-debug test-release test-distributed test-java test-python test-sanitized fuzz-lint $(SMOKES) show-skips

forget-skips:
	@mkdir -p $(dir $(ROCKMILL_SKIPS)) && : > $(ROCKMILL_SKIPS)

show-skips:
	@sort -u $(ROCKMILL_SKIPS) | sed 's/^/skipped: /'
	@echo "$$(sort -u $(ROCKMILL_SKIPS) | wc -l) tests were skipped, or a part of them"

PROSE := '*.rs' '*.c' '*.cpp' '*.cu' '*.cuh' '*.h' '*.hpp' '*.java' '*.go' '*.md'

# The Rust side of what the host and the kernels share, from the headers of kernels/. Some of it is in core, which may not
# compile before.
boundary: setup
	ROCKMILL_WRITE_BOUNDARY=1 cargo check --locked --keep-going -p rockmill-cuda --no-default-features

lint: setup
	scripts/prose.py $$(git ls-files $(PROSE))
	@! echo "Of each entry, nobody reads the value." | scripts/prose.py - > /dev/null
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo fmt --manifest-path doors/rockmill-rocksdb/Cargo.toml --check
	cargo fmt --manifest-path dev/ballista/Cargo.toml --check
	cargo clippy --locked --release --workspace --all-targets -- -D warnings
	cargo clippy --locked --release --workspace --features rockmill-cli/distributed --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --locked --release --no-deps --workspace

test-debug: setup
	cargo test --locked $(LIGHT_CRATES)

test-release: setup
	@scripts/setup.sh tests
	cargo test --locked --release --workspace

# The GPU's kernels on the host, watched.
test-sanitized: setup
	scripts/sanitize.sh

# Each stage of the kernels alone, on the host, and on a GPU if the machine has one and nvcc. STAGE=merge_runs runs the tests
# of one stage, STAGE=merge those of kernels/tests/merge.cpp.
test-kernels:
	@$(MAKE) -s --no-print-directory -j$$(nproc) -C kernels/tests \
	    OUT=$(abspath $(CARGO_TARGET_DIR))/kernel-tests STAGE="$(STAGE)"

fuzz-lint: setup
	scripts/fuzz.sh lint

fuzz-smoke: fuzz-lint $(SMOKES)

$(SMOKES): fuzz-smoke-%: setup
	scripts/fuzz.sh $* $(SMOKE_SECONDS)

# Other versions of RocksDB: VERSIONS="10.10.1 11.8.1"; see scripts/matrix.sh.
test-matrix: build
	scripts/matrix.sh $(dir $(ROCKSDB)) $(VERSIONS)

# Frees what builds have put into the user's cache folder.
clean-cache:
	rm -rf $(dir $(patsubst %/,%,$(dir $(ROCKSDB)))) .cargo/config.toml

# Does not fit into continuous integration; docs/internals/testing.md says how long each part takes.
test-long: forget-skips
	@scripts/test.sh test-reproducible test-many test-stress test-profiles test-distributed-long test-ballista test-python-long test-matrix test-header test-db-stress test-go test-jars test-kafka test-flink test-spark show-skips

# Two releases and two wheels, from two checkouts and by users with two homes, are equal files. FOLDER=out keeps one.
test-reproducible: setup
	cd "$(or $(PWD),.)" && "$(CURDIR)/scripts/reproducible.sh" $(if $(FOLDER),"$(FOLDER)")

test-many: setup
	ROCKMILL_CASES=$(or $(ROCKMILL_CASES),100000) PROPTEST_CASES=100000 cargo test --locked --release $(LIGHT_CRATES)
	ROCKMILL_SEED=random ROCKMILL_CASES=$(or $(ROCKMILL_CASES),100000) \
	    cargo test --locked --release -p rockmill-tests --test differential
	ROCKMILL_SEED=$$RANDOM ROCKMILL_CASES=$(or $(ROCKMILL_CASES),1000) \
	    cargo test --locked --release -p rockmill-capi --test doors -- --nocapture random_histories attaches_are_called
	ROCKMILL_SEED=random ROCKMILL_CASES=$(or $(ROCKMILL_CASES),10000) \
	    cargo test --locked --release -p rockmill-sql --test answers -- cached::

# The table of docs/reference/profiles.md, and programs that are killed; MIB=128 writes less to each database.
test-profiles: setup
	ROCKMILL_PROFILE_MIB=$(or $(MIB),2048) ROCKMILL_SETTINGS=device=$(or $(DEVICE),cpu) \
	    cargo test --locked --release -p rockmill-capi --test doors -- --nocapture the_compactions_of_twelve_programs
	ROCKMILL_PROFILE_KILLS=$(or $(KILLS),20) \
	    cargo test --locked --release -p rockmill-capi --test doors -- --nocapture what_killed_programs_with_attached_objects

test-stress: setup
	export ROCKMILL_SEED=$$RANDOM ROCKMILL_SECONDS=$(or $(ROCKMILL_SECONDS),3600); \
	cargo test --locked --release -p rockmill-live -p rockmill-view -p rockmill-sql --test stress --test live -- --nocapture; \
	cargo test --locked --release -p rockmill-capi --test doors -- threads_of_a_cpp_program_get

# Statements over several processes. Crates of the feature, the command and its tests are compiled for it, and nothing else.
test-distributed: setup
	cargo test --locked --release --workspace --features rockmill-cli/distributed --lib -- channels:: shards:: address:: messages:: parts::
	cargo test --locked --release --workspace --features rockmill-cli/distributed --test distributed --test requests

# The same with 200 random cases of each test.
test-distributed-long:
	ROCKMILL_CASES=$(or $(ROCKMILL_CASES),200) $(MAKE) test-distributed

# Plans over RocksDB on Ballista, which needs more of DataFusion than Rockmill: all of it is compiled again.
test-ballista: setup
	cargo test --locked --manifest-path dev/ballista/Cargo.toml

fuzz: setup
	@[ -n "$(TARGET)" ] || { echo "usage: make fuzz TARGET=name SECONDS=n; names: $(FUZZ_TARGETS)" >&2; exit 2; }
	scripts/fuzz.sh $(TARGET) $(SECONDS)
