# The toolchain is fetched by the go command itself where the machine's own is older.
export GOTOOLCHAIN := go1.27.1
export GOEXPERIMENT := simd

GO ?= go
PKGS := ./...
# Packages whose values are shared between goroutines.
SHARED := ./rollout/... ./replay/... ./pipeline/... ./sim/... ./policy/... ./run/...
FUZZTIME ?= 30s
# For bench-peers alone.
PYTHON ?= python3.11
# The backend's assembly kernels do their address arithmetic in uintptr, which -race's pointer check takes for a mistake.
RACE := -race -gcflags=all=-d=checkptr=0

.PHONY: help build demo test race soak lint fuzz bench bench-peers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/reprise
	@mkdir -p bin
	$(GO) build -o bin/reprise ./cmd/reprise

demo: build ## train a small language model without and with replay; writes runs/demo/report.html
	bin/reprise train --compare --out runs/demo --force

test: ## run all tests, with the race detector where state is shared
	$(GO) test $$($(GO) list $(PKGS) | grep -v /cmd/)
	$(GO) test -count=1 ./cmd/... # they build the program, which the test cache does not see
	@if command -v $$($(GO) env CC) >/dev/null; then \
		echo "$(GO) test $(RACE) -short $(SHARED)"; $(GO) test $(RACE) -short $(SHARED); \
	else echo "SKIPPED: the race detector needs a C compiler, and $$($(GO) env CC) is not installed"; fi

race: ## run every test with the race detector
	$(GO) test $(RACE) $(PKGS)

soak: ## eight inserting and eight sampling goroutines on a table, a minute for each of two, under the race detector
	$(GO) test $(RACE) ./replay -run Concurrent -concurrent 60s -v

lint: ## gofmt, go vet and staticcheck
	@unformatted=$$($$($(GO) env GOROOT)/bin/gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt these files:"; echo "$$unformatted"; exit 1; }
	$(GO) vet $(PKGS)
	$(GO) tool staticcheck $(PKGS)

fuzz: ## fuzz every parser for FUZZTIME (30s) each
	@for package in $$($(GO) list $(PKGS)); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; \
	done

bench: ## measure the figures the project is held to, each beside its baseline
	@$(GO) test -run '^$$' -bench . -benchtime 1s ./replay/... ./policy ./pipeline | awk ' \
		/^(cpu|pkg|FAIL|panic|---)/ {print} \
		/^Benchmark/ {printf "  %-58s", $$1; for (i = 3; i < NF; i += 2) printf " %12s %-15s", $$i, $$(i+1); print ""}'

bench-peers: .venv-peers/ready ## compare the prioritized table with its peers in Python; needs Python 3.11 and PyPI
	@mkdir -p bin
	$(GO) build -o bin/bench-peers ./benchmarks/peers/ours
	PYTHONDONTWRITEBYTECODE=1 .venv-peers/bin/python benchmarks/peers/compare.py --ours bin/bench-peers --json runs/bench-peers.json

.venv-peers/ready: benchmarks/peers/requirements.txt
	@rm -rf .venv-peers
	@$(PYTHON) -m venv .venv-peers || { echo "bench-peers needs Python 3.11 with venv: install it, or name it with PYTHON="; exit 1; }
	@.venv-peers/bin/pip install --quiet --disable-pip-version-check --retries 1 -r $< || { \
		echo "bench-peers takes cpprb and numpy from PyPI, which was not reached or has them not for this machine"; exit 1; }
	@touch $@

clean: ## remove what was built and the demo's run
	rm -rf bin runs/demo
