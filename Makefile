# Everything builds into ${FOREBAY_TARGET:-$HOME/.cache/forebay-target} with one profile; see scripts/env.sh.
SHELL := /bin/bash
.PHONY: help build demo test bench-store bench-wire soak torture-store fuzz fmt clean-cache

help:
	@echo 'make demo    push, change, push again, fetch and verify real data'
	@echo 'make test    everything a change has to pass'
	@echo 'make build   the forebay binary'
	@echo 'make bench-store   the store against cp, borg, restic and casync, medians'
	@echo 'make bench-wire   nodes against a raw quinn loop, medians'
	@echo 'make soak    the long forms of the fault tests'
	@echo 'make torture-store   the store with calls that fail or kill at every point, and the figures'
	@echo 'make fuzz    fuzz every decoder (SECONDS_EACH=60)'
	@echo 'make fmt     format the sources'
	@echo 'make clean-cache   remove what these commands keep outside the clone'

build:
	@scripts/setup.sh build
	@. scripts/env.sh && cargo build --locked --workspace && echo "built $$FOREBAY"

demo:
	@scripts/demo.sh

test:
	@scripts/test.sh

bench-store:
	@scripts/bench/store.sh

bench-wire:
	@scripts/bench/wire.sh

soak:
	@scripts/test.sh soak

torture-store:
	@scripts/test.sh torture

fuzz:
	@scripts/fuzz.sh

fmt:
	@cargo fmt --all

clean-cache:
	@scripts/clean_cache.sh
