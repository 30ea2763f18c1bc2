# Needs Go (the version that go.mod names) and nothing else; with a C compiler the tests run under
# the race detector, too. Tools are pinned in go.mod and run by go tool.
SHELL := /bin/sh
GO ?= go
PKG ?= ./...
# How long make fuzz works at each target, and how many random steps a model test takes in make soak.
FUZZTIME ?= 30s
STEPS ?= 1000000
# What make bench runs, and for how long each.
BENCH ?= .
BENCHTIME ?= 1s

.DEFAULT_GOAL := help
.PHONY: help test vet mutants-short mutants race soak fuzz bench examples demo lint clean

help: ## Print this
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

test: vet mutants-short ## Vet, staticcheck, the short list of mutants, all tests (with -race if there is a C compiler)
	@$(GO) run ./internal/tools/gotest -race auto -vet=off -timeout 4m $(PKG)

vet: ## go vet and staticcheck
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

mutants-short: ## Switch off the most important rules one by one; the test behind each must fail
	@$(GO) run ./internal/tools/mutants -short

mutants: ## Switch off every rule behind a guarantee, one by one; the test behind each must fail
	@$(GO) run ./internal/tools/mutants

race: ## All tests under the race detector, three times
	@$(GO) run ./internal/tools/gotest -race on -count 3 -timeout 15m $(PKG)

soak: ## Model tests of trees, ledger and the rest with STEPS random steps (1000000)
	@KILLICK_MODEL_STEPS=$(STEPS) $(GO) run ./internal/tools/gotest -run 'Model' -count 1 -timeout 60m $(PKG)

fuzz: ## Every fuzz target for FUZZTIME (30s)
	@$(GO) list ./... | while read -r p; do \
		for f in $$($(GO) test -list '^Fuzz' "$$p" | grep '^Fuzz'); do \
			echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) "$$p" || exit 1; \
		done; \
	done

bench: ## Benchmarks: BENCH is a pattern, BENCHTIME how long each
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem $(PKG)

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
