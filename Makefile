# The few commands of this project; `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Compiled at once: a start must not wait for that, nor a read-only checkout repeat it.
UV_INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --no-deps

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(VENV)/.bootstrap: requirements/bootstrap.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

$(VENV)/.run: requirements/run.txt requirements/build.txt pyproject.toml | $(VENV)/.bootstrap
	$(UV_INSTALL) --require-hashes -r requirements/run.txt -r requirements/build.txt
	$(UV_INSTALL) --no-build-isolation --editable .
	touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(VENV)/.bootstrap
	$(UV_INSTALL) --require-hashes -r requirements/dev.txt
	$(UV_INSTALL) --no-build-isolation --editable .
	touch $@ $(VENV)/.run

.PHONY: run
run: $(VENV)/.run ## Serve on port 7860 with the embedded CPU engine
	$(BIN)/hunyuan-ocr serve

.PHONY: test
test: $(VENV)/.dev lint ## Check style and types, run the unit and API tests
	# The longest files first, so that no process is left alone with one.
	$(BIN)/pytest --numprocesses 3 --dist loadfile -m "not alone" tests/api tests/chart tests/loadtest tests/unit tests/dashboards
	$(BIN)/pytest -m alone

$(VENV)/.fuzz: requirements/fuzz.txt $(VENV)/.dev
	$(UV_INSTALL) --require-hashes -r requirements/fuzz.txt
	touch $@

SECONDS ?= 600

.PHONY: fuzz
fuzz: $(VENV)/.fuzz ## Feed damaged files to headers and decoders: make fuzz SECONDS=600
	nice $(BIN)/python -m tests.fuzz.decode -max_total_time=$(SECONDS)

.PHONY: broken-images
broken-images: $(VENV)/.dev ## Send other projects' broken files through the service; fetches them
	$(BIN)/python -m tests.fuzz.broken_images

LANE := $(PYTHON) scripts/engine/lane.py

.PHONY: engine-up
engine-up: ## Start the real engine (vLLM on the CPU, tiny checkpoint) on port 8000
	$(LANE) install --version 0.28.0
	$(LANE) up --version 0.28.0 --port 8000

.PHONY: engine-down
engine-down: ## End the engine that engine-up started
	$(LANE) down --port 8000

.PHONY: test-engine
test-engine: $(VENV)/.dev ## Run the tests against real vLLM; installs it outside the checkout
	$(LANE) install --version 0.28.0
	$(LANE) install --version 0.32.0
	command -v nginx >/dev/null || { apt-get update -qq && apt-get install -y -qq nginx-light; }
	command -v redis-server >/dev/null || { apt-get update -qq && apt-get install -y -qq redis-server; }
	$(BIN)/python scripts/chart/tools.py otelcol >/dev/null
	$(BIN)/pytest tests/engine

.PHONY: test-rules
test-rules: $(VENV)/.dev ## Try every alert with Prometheus' own promtool
	command -v promtool >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus; }
	$(BIN)/pytest tests/dashboards_promtool

.PHONY: test-gpu
test-gpu: $(VENV)/.dev ## Run the GPU probe's tests, on a library compiled for them and on a real one where there is a card
	command -v cc >/dev/null || { apt-get update -qq && apt-get install -y -qq gcc libc6-dev; }
	$(BIN)/pytest tests/gpu

.PHONY: test-chart
test-chart: $(VENV)/.dev ## Check the chart with helm-unittest, Helm 3, kubeconform and Pod Security; builds them with Go, once
	$(BIN)/python scripts/chart/generate.py --check --docs
	$$($(BIN)/python scripts/chart/tools.py helm-unittest) --strict charts/hunyuan-ocr
	$(BIN)/pytest tests/chart tests/chart_go

CLUSTER := $(PYTHON) scripts/cluster/cluster.py
# Prepared programs of the cluster; where this folder is not, they are built with Go.
CLUSTER_CACHE ?= ../shared/cluster-bin
NODES ?= 2

.PHONY: cluster-up
cluster-up: ## Start a Kubernetes cluster on this machine: NODES=2 GPU=n1=1,n2=1 GPU_TAINT=1 NETPOL=1
	$(CLUSTER) up --nodes $(NODES) --archives "$(CLUSTER_CACHE)" $(if $(GPU),--gpu "$(GPU)") \
	  $(if $(GPU_TAINT),--gpu-taint) $(if $(NETPOL),--network-policy)

.PHONY: cluster-down
cluster-down: ## End that cluster and leave nothing of it
	$(CLUSTER) down

IMAGES := $(PYTHON) scripts/images/images.py

.PHONY: images
images: ## Build the service's images, without a registry: or make images NAMES=hunyuan-ocr-engine-cpu-0.28.0
	$(IMAGES) build $(NAMES)

.PHONY: push
push: ## Push the images: make push REGISTRY=registry.example/team
	$(IMAGES) push $(REGISTRY) $(NAMES)

.PHONY: e2e
e2e: $(VENV)/.dev ## Install the chart on a real cluster and make things happen to it; needs root
	CLUSTER_CACHE="$(CLUSTER_CACHE)" $(BIN)/pytest -m "not long" tests/cluster

.PHONY: e2e-long
e2e-long: $(VENV)/.dev ## The rest of it: scaling, every fault, a heat wave, policies; an hour
	command -v redis-server >/dev/null || { apt-get update -qq && apt-get install -y -qq redis-server; }
	CLUSTER_CACHE="$(CLUSTER_CACHE)" $(BIN)/pytest -m long tests/cluster

.PHONY: lint
lint: $(VENV)/.dev ## Check style, types, layers and generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate.py --check
	$(BIN)/python dashboards/generate.py --check
	$(BIN)/python scripts/chart/generate.py --check

.PHONY: format
format: $(VENV)/.dev ## Format the code and write generated files
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python scripts/generate.py
	$(BIN)/python dashboards/generate.py
	$(BIN)/python scripts/chart/generate.py

.PHONY: format-chart
format-chart: $(VENV)/.dev ## Write the chart's schema and README too; builds two programs with Go, once
	$(BIN)/python scripts/chart/generate.py --docs

.PHONY: figure
figure: $(VENV)/.dev ## Measure a figure: make figure NAME=cer (without NAME: list them)
	@$(BIN)/python -m benchmarks $(NAME)

MINUTES ?= 30

.PHONY: soak
soak: $(VENV)/.dev ## Load with disconnects and engine restarts, and look for leaks: MINUTES=30
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header

.PHONY: lock
lock: $(VENV)/.bootstrap ## Resolve requirements/*.txt anew from pyproject.toml
	$(LOCK) pyproject.toml --extra embedded -o requirements/run.txt
	$(LOCK) pyproject.toml -c requirements/run.txt -o requirements/slim.txt
	$(LOCK) --group build -c requirements/run.txt -o requirements/build.txt
	$(LOCK) pyproject.toml --extra embedded --extra loadtest --extra dev --group build \
	  -c requirements/run.txt -c requirements/build.txt -o requirements/dev.txt
	$(LOCK) --group fuzz -o requirements/fuzz.txt
