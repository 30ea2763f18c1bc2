# Needs Go (the version that go.mod names) and nothing else; with a C compiler the tests run under
# the race detector, too, and with Java 17 and Maven those run that need Apache Kafka: the others skip
# them, and CI=true makes that a failure. Tools are pinned in go.mod and run by go tool.
SHELL := /bin/sh
GO ?= go
# The packages that take longest come first, so that both processors are busy to the end.
PKG ?= ./worker ./cmd/killick/... . ./internal/engine ./...
# A program under the race detector sleeps for a second before it exits, in case another goroutine
# has something to report; tests wait for theirs.
export GORACE := atexit_sleep_ms=0 $(GORACE)
# The tests that have a larger size, with KILLICK_FULL=1.
FULL := TestLateVerdicts|TestKeptPayloads|TestStorm|TestEncodeRemembersASubset
# How long make fuzz works at each target, and how many random steps a model test takes in make soak.
FUZZTIME ?= 30s
STEPS ?= 1000000
# What make bench runs, and for how long each.
BENCH ?= .
BENCHTIME ?= 1s

.DEFAULT_GOAL := help
.PHONY: help test proof staticcheck vet mutants race soak faults fuzz bench compare examples demo lint clean

help: ## Print this
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# Under the race detector everything is built once, for vet, mutants and tests alike. The package
# that is built to find out is the one of the standard library that needs a C compiler. Allocations
# are counted, and memory is used up, without the detector. What needs Apache Kafka runs beside real processes, in a build
# that they can be made to die in (killick_crash), without the detector; three tests at a time, since
# most of the time they wait. Debugging tables are left out of the test programs (-w): linking
# them is a tenth of the time on an empty machine.
test: ## Vet, the short list of mutants, all tests (with -race if there is a C compiler)
	@if CGO_ENABLED=1 $(GO) build -race runtime/cgo 2>/dev/null; then race=-race; CGO_ENABLED=1; export CGO_ENABLED; \
	else race=; echo 'no C compiler that cgo can use: the race detector is off'; fi; \
	set -ex; \
	$(GO) vet $$race ./...; \
	$(GO) run ./internal/tools/mutants -short $$race; \
	if [ -n "$$race" ]; then $(GO) run ./internal/tools/gotest -vet=off -run 'Allocs|TestOutOfMemory' ./internal/engine ./internal/core ./worker ; fi; \
	$(GO) run ./internal/tools/gotest -tags killick_crash -ldflags=-w -parallel 3 -timeout 20m ./internal/proof ; \
	$(GO) run ./internal/tools/gotest -vet=off -ldflags=-w -timeout 10m $$race $(PKG)

proof: ## The tests that need Apache Kafka; KILLICK_TEST_KAFKA=3.9.1, 4.0.0 or tv1 for another one than the latest
	$(GO) run ./internal/tools/gotest -count 1 -tags killick_crash -parallel 3 -timeout 30m -v ./internal/proof

# In CI before the tests, which then find everything built.
staticcheck: ## staticcheck, which takes as long to build as killick does
	@if CGO_ENABLED=1 $(GO) build -race runtime/cgo 2>/dev/null; then race=-race; CGO_ENABLED=1; export CGO_ENABLED; fi; \
	set -ex; \
	check=$$($(GO) tool -n staticcheck); \
	GOFLAGS="$$GOFLAGS $$race" $$check ./...

vet: staticcheck ## go vet and staticcheck
	$(GO) vet ./...

mutants: ## Switch off every rule behind a guarantee, one by one; the test behind each must fail
	@$(GO) run ./internal/tools/mutants

race: ## All tests under the race detector, three times
	@CGO_ENABLED=1 $(GO) run ./internal/tools/gotest -race -count 3 -timeout 15m $(PKG)

soak: ## Model tests with STEPS random steps (1000000), and tests of volume at their full size
	@KILLICK_FULL=1 KILLICK_MODEL_STEPS=$(STEPS) $(GO) run ./internal/tools/gotest -run 'Model|$(FULL)' -count 1 -timeout 60m $(PKG)

# The names of the tests that have a long form of this kind, and of those whose faults are real ones.
FAULTS ?= MovesOfProcesses|OnlyOwnersCommit|KillsTheProcess|StuckTask|KilledAgain|AtMostOnceOverKills|OutOf|LogIsFull|EndsInReverse
# The table of docs/faults.md, at full size: the worker's long forms, the races of the engine, and all on
# Apache Kafka (Java 17 and, once, Maven).
faults: ## The rows of docs/faults.md at full size: kills, freezes, moves, damage, on Kafka, too (an hour or two)
	@KILLICK_FULL=1 $(GO) run ./internal/tools/gotest -run '$(FAULTS)' -count 1 -timeout 60m -v ./worker
	@KILLICK_FULL=1 $(GO) run ./internal/tools/gotest -run 'AtTheDeadline|Forgotten|FanOut' -count 1 -timeout 30m -v ./internal/engine
	@KILLICK_FULL=1 $(GO) run ./internal/tools/gotest -tags killick_crash -count 1 -timeout 180m -v ./internal/proof ./testenv/faults

faults-mutants: ## Switch off the rules of docs/faults.md, row by row; the tests it names must fail
	@$(GO) run ./internal/tools/mutants -faults

fuzz: ## Every fuzz target for FUZZTIME (30s)
	@$(GO) list ./... | while read -r p; do \
		for f in $$($(GO) test -list '^Fuzz' "$$p" | grep '^Fuzz'); do \
			echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) "$$p" || exit 1; \
		done; \
	done

bench: ## Benchmarks: BENCH is a pattern, BENCHTIME how long each
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem $(PKG)

compare: ## Processor time per record beside the bare franz-go loop: go run ./internal/bench -h
	$(GO) run ./internal/bench

examples: ## Programs in examples/, and the checked examples of the documentation
	$(GO) build -o /dev/null ./examples/...
	@$(GO) run ./internal/tools/gotest -run '^Example' -count 1 $(PKG)
	@$(GO) run ./internal/tools/gotest -count 1 ./examples/...

demo: ## The order story: a worker is killed half way, and the outcome is checked
	$(GO) run ./cmd/killick demo

lint: vet ## vet, and golangci-lint if it is installed (its settings: .golangci.yaml)
	@if command -v golangci-lint >/dev/null; then golangci-lint run; \
	else echo 'golangci-lint is not installed (https://golangci-lint.run): only vet and staticcheck ran'; fi

clean: ## Remove what these targets leave behind
	$(GO) clean -testcache
	rm -rf bin dist .cache
