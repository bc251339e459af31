# What can be done here. A Rust tool chain is all that is needed; cargo fetches the rest.

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help test counts demo bench conformance r2p2 fmt lint

help: ## this list
	@sed -n 's/^\([a-z0-9]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name what; do printf '  make %-11s %s\n' "$$name" "$$what"; done

test: ## every check: house rules, format, all tests, models of the lock-free code; a summary at the end
	@$(CARGO) xtask test

counts: ## instructions of codec, rings and calls, beside those in docs/counts.toml; needs valgrind
	@$(CARGO) xtask counts

demo: ## build it and watch it work: two daemons, a service, a client, on this machine
	$(CARGO) build --release --locked --package trunkline-cli --package trunkline-example-search \
		--package trunkline-example-token-bucket-1 --package trunkline-example-token-bucket-2
	@"$${CARGO_TARGET_DIR:-target}"/release/trunkline demo

bench: ## measure it beside the bare limits of this machine and the field; ONLY=latency, grpc, ... for one part
	$(CARGO) build --release --locked --package trunkline-cli --package trunkline-bench
	$(CARGO) run --release --locked --package trunkline-bench -- $(ONLY)

conformance: ## run the field's own suites against it; needs Go, Node and Python to fetch them, and says what it lacks
	@tests/interop/run

r2p2: ## R2P2 over a network that loses, doubles and reorders: 100,000 calls between namespaces; needs root
	TRUNKLINE_R2P2_CALLS=100000 $(CARGO) test --release --locked --package trunkline-system-tests --test all -- \
		r2p2_weather --nocapture

fmt: ## format every file
	$(CARGO) fmt --all

lint: ## format check and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
