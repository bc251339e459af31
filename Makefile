# What can be done here. A Rust tool chain is all that is needed; cargo fetches the rest.

CARGO ?= cargo
# Panics in a package name the files of dependencies by their place in the registry, not by a folder of this machine.
PACKAGED = RUSTFLAGS="$$RUSTFLAGS --remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}/registry/src=registry"

.DEFAULT_GOAL := help
.PHONY: help test counts demo c wheel deb deb-test crates docs bench conformance r2p2 soak storm fmt lint

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name what; do printf '  make %-11s %s\n' "$$name" "$$what"; done

test: ## every check: the project's rules, format, all tests (system tests with 1, 2 and 3 shards), models of the lock-free code; a summary at the end
	@$(CARGO) xtask test

counts: ## instructions of codec, rings and calls, beside those in docs/counts.toml; needs valgrind
	@$(CARGO) xtask counts

demo: ## build it and watch it work: two daemons, a service, a client, on this machine
	$(CARGO) build --profile demo --locked --package trunkline-cli --package trunkline-example-search \
		--package trunkline-example-token-bucket-1 --package trunkline-example-token-bucket-2 \
		--no-default-features --features trunkline-cli/ring,trunkline-example-search/ring
	@echo "Built in a hurry, not for speed: what docs/benchmarks.md measures is a release build."
	@"$${CARGO_TARGET_DIR:-target}"/demo/trunkline demo

c: ## libtrunkline for C and what calls it, below target/c (PREFIX): shared, archive, header, pkg-config, CMake
	$(CARGO) build --release --locked --package trunkline-c
	$(CARGO) rustc --release --locked --package trunkline-c --crate-type staticlib
	@bindings/c/install "$(or $(PREFIX),$${CARGO_TARGET_DIR:-target}/c)" "$${CARGO_TARGET_DIR:-target}"/release/libtrunkline_c.so \
		"$${CARGO_TARGET_DIR:-target}"/release/libtrunkline_c.a

wheel: ## the Python package, below target/wheel: one wheel for CPython 3.9 and later
	$(CARGO) build --release --locked --package trunkline-c
	@bindings/python/wheel "$${CARGO_TARGET_DIR:-target}/wheel" "$${CARGO_TARGET_DIR:-target}"/release/libtrunkline_c.so

deb: ## Debian packages of the daemon and of the library for C and C++, below target/deb
	$(PACKAGED) $(CARGO) build --release --locked --package trunkline-cli --package trunkline-c --package trunkline-protoc-gen
	@$(CARGO) xtask deb
	@$(CARGO) xtask deb-library

deb-test: ## install, call, upgrade with calls in flight, purge, in a Debian of its own; needs root and debootstrap (MIRROR)
	$(PACKAGED) $(CARGO) build --release --locked --package trunkline-cli --package trunkline-c --package trunkline-protoc-gen
	$(CARGO) build --profile demo --locked --package trunkline-example-search --no-default-features --features ring
	@packaging/deb-test

crates: ## package every crate that others depend on, and build it from its package
	@$(CARGO) xtask crates

docs: ## the documentation as a site, its links checked; installs mdBook below target if there is none
	@$(CARGO) xtask docs

bench: ## measure it beside the bare limits of this machine and the field; ONLY=latency, grpc, ... for one part
# Peers that are not installed are unpacked below target; PEERS=install installs them, PEERS=installed fetches none.
# PUBLISH=docs/measured writes the tables there as well; `cargo xtask pages` then makes the pages that show them.
	$(CARGO) build --release --locked --package trunkline-cli --package trunkline-bench
	$(CARGO) run --release --locked --package trunkline-bench -- $(ONLY) $(if $(PEERS),--peers $(PEERS)) $(if $(PUBLISH),--publish $(PUBLISH))

conformance: ## run the field's own suites against it; needs Go, Node and Python to fetch them, and says what it lacks
	@tests/interop/run

r2p2: ## R2P2 over a network that loses, doubles and reorders: 100,000 calls between namespaces; needs root
	TRUNKLINE_R2P2_CALLS=100000 $(CARGO) test --release --locked --package trunkline-system-tests --test all -- \
		r2p2_weather --nocapture

soak: ## random calls in every topology, ten minutes each (SOAK_SECONDS), three at a time; the seed is printed
	SOAK_SECONDS=$${SOAK_SECONDS:-600} $(CARGO) test --release --locked --package trunkline-system-tests --test all -- \
		soak:: --nocapture --test-threads 3

storm: ## 500 replacements, 500 changes of policies and modules, 1,500 kills (ROUNDS) under load and attack; then `trunkline upgrade` as often
	STORM_ROUNDS=$(or $(ROUNDS),500) $(CARGO) test --locked --workspace --test all -- storm --nocapture
	UPGRADE_ROUNDS=$(or $(ROUNDS),500) TRUNKLINE_TEST_HANG_SECONDS=36000 $(CARGO) test --locked --workspace --test upgrade -- \
		every_replacement the_daemons_own --nocapture --test-threads 1

fmt: ## format every file
	$(CARGO) fmt --all

lint: ## format check and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
