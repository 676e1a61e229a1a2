# `make help` says what there is. Everything that is made lies in .cluster/ and .venv/, and in a cache of what is slow to
# build (see hack/settings.sh); `make clean` removes all of it.

PYTHON := .venv/bin/python
.DEFAULT_GOAL := help
LONG_TESTS := test-variants test-simulation test-browser test-gpu test-kueue test-autoscale test-frameworks test-alerts test-release test-install matrix test-coscheduling test-gangs
.NOTPARALLEL:
.PHONY: help try demo bench bench-kubeflow trace soak scale gpu-pack docs site unit simulate test test-times growth test-all test-fast test-e2e $(LONG_TESTS) check fix venv helm etcd kwok cluster images install lock version release clean

help: ## Say what there is to make
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

try: ## Without cluster, Docker and root: train a small model in processes of this machine, and disturb it (EXAMPLE=plain: a script without the library)
	@hack/try.sh $(ARGS)

demo: install ## Train a small model on a kind cluster, and disturb it: kill a rank, lose a pod, grow, shrink (JOB=file: a job of your own; ARGS: --example plain, lightning)
	@hack/demo.sh $(if $(JOB),--job "$(JOB)") $(ARGS)

bench: venv install ## Measure the promises on the kind cluster: faults, again and again (ARGS: --trials N, --only a,b)
	@PYTHONPATH=hack $(PYTHON) -m bench $(ARGS)

bench-kubeflow: venv install ## Lose pods side by side: in jobs of this operator, and in a tuned PyTorchJob of Kubeflow's (ARGS: --trials N, --only a,b)
	@PYTHONPATH=hack $(PYTHON) -m kubeflow $(ARGS)

trace: venv install ## Lose four nodes while the jobs of `make bench-kubeflow` train, and say what share of the time each trains (ARGS: --only a,b)
	@PYTHONPATH=hack $(PYTHON) -m kubeflow --replay $(ARGS)

soak: venv install ## Faults at random to jobs of all sorts on the kind cluster (ARGS: --minutes 60 --seed 7, --hostile, --replay FILE)
	@PYTHONPATH=hack $(PYTHON) -m soak $(ARGS)

scale: venv install kwok ## What many jobs and workers cost the operator (ARGS: --jobs N --workers M, --curve, --values FILE, --docs)
	@hack/kind/client-limits.sh
	@PYTHONPATH=hack $(PYTHON) -m scale $(ARGS)

docs: venv ## Write what is generated from the sources: the references of the API and of the chart, pictures
	@PYTHONPATH=.:hack $(PYTHON) hack/reference

site: venv ## Build the pages as a site that needs no network: .cluster/website/html
	@hack/website.sh

# More processes than cores, as these tests also wait. With the variable, a third of the time goes into compiling modules again.
unit: venv ## What a change of a rule needs: tests without processes, torch and long simulations; half a minute (ARGS: for pytest)
	@env -u PYTHONDONTWRITEBYTECODE $(PYTHON) -m pytest -m "not e2e and not long and not gpu and not process and not torch and not simulation" --ignore tests/e2e --ignore tests/gpu --ignore tests/frameworks --hypothesis-profile unit --numprocesses 3 --dist worksteal --durations 10 $(ARGS)

simulate: venv ## Days of a cluster from a seed, in time that passes at once: the real operator, faults, what must always hold (ARGS: --days N --nodes N --jobs N --seed N --shrink)
	@$(PYTHON) -m tests.simulation $(ARGS)

test: ## All checks and tests but the long ones: first the fast ones, then those on the cluster
	@hack/test.sh

test-times: venv ## Wall and CPU seconds of the last `make test`, by folder and by test (ARGS: --tests N)
	@$(PYTHON) hack/test_times.py $(ARGS)

growth: venv ## Bytes, fields and seconds beside the last landed figures (ARGS: --land writes them)
	@PYTHONPATH=hack/reference $(PYTHON) hack/growth.py $(ARGS)

test-all: ## What `make test` runs, then every long test (docs/evidence/long-tests.md)
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory $(LONG_TESTS)

test-fast: check helm etcd ## Format, lint, types, prose, layers, and the tests that need no cluster (ARGS: for pytest)
	@rm -f .cluster/times/fast.tsv
	@env -u PYTHONDONTWRITEBYTECODE RECORD_TIMES=.cluster/times/fast.tsv $(PYTHON) -m pytest -m "not e2e and not long and not gpu" --numprocesses 4 --dist worksteal $(ARGS)

test-e2e: venv install ## The promises, each on the kind cluster (ARGS: for pytest)
	@hack/test-e2e.sh $(ARGS)

test-gpu: venv ## NCCL, states and examples on a GPU of this machine; skipped where there is none (ARGS: for pytest)
	@$(PYTHON) -m pytest -m gpu tests/gpu tests/worker_image $(ARGS)

gpu-pack: venv ## What measures changes of the group on a CUDA card, in a folder for a machine with torch and no network (docs/use/gpu.md)
	@PYTHONPATH=hack $(PYTHON) -m gpu.pack

test-autoscale: venv install ## A job that a HorizontalPodAutoscaler scales: measured for minutes (ARGS: for pytest)
	@$(PYTHON) -m pytest -m long tests/e2e/scheduling/test_horizontal_autoscaler.py $(ARGS)

test-kueue: venv install ## Queues of a real Kueue; skipped where it cannot be had (ARGS: for pytest)
	@$(PYTHON) -m pytest -m long --capture=no tests/e2e/kueue $(ARGS)

test-variants: venv etcd install ## What `make test` shows once, in each variant: backends, handlers of SIGTERM, ways to start, local mode, limits; ten times the examples
	@$(PYTHON) -m pytest -m "(hypothesis or seeds) and not long and not gpu" --hypothesis-profile long --numprocesses 2 --dist worksteal --ignore tests/e2e --ignore tests/gpu --ignore tests/frameworks
	@$(PYTHON) -m pytest -m "long and not gpu" --numprocesses 2 --dist worksteal --ignore tests/plugin/page/browser tests/worker_image tests/local tests/examples tests/plugin
	@$(PYTHON) -m pytest -m "long and e2e" tests/e2e

test-simulation: venv ## An hour of days of a cluster from new seeds at each commit (docs/internals/simulation.md)
	@$(PYTHON) -m pytest -m long tests/simulation

test-browser: venv ## The page of `kubectl epj ui` in Chromium; skipped where that cannot be had (ARGS: for pytest; PICTURES=1: draw docs/use/page)
	@hack/browser.sh
	@PYTHONPATH=$$PYTHONPATH:.cluster/browser $(PYTHON) -m pytest -m long tests/plugin/page/browser $(ARGS)

test-frameworks: venv ## Scripts of training frameworks through resizes and losses; each is skipped without its framework (ARGS: for pytest)
	@$(PYTHON) -m pytest -m long tests/frameworks $(ARGS)

test-alerts: venv helm ## The chart's alerts on recorded series, by Prometheus' own promtool; skipped where it cannot be had (ARGS: for pytest)
	@hack/promtool.sh
	@$(PYTHON) -m pytest -m long tests/chart $(ARGS)

test-release: venv helm ## Two releases of this checkout are the same, and a registry of this machine serves them, signed (ARGS: for pytest)
	@hack/release/registry.sh
	@hack/release/cosign.sh
	@$(PYTHON) -m pytest -m long --capture=no tests/release $(ARGS)

test-install: venv install ## A release in a registry of this machine, as its users have it: installed, upgraded to, rolled back (ARGS: for pytest)
	@hack/release/registry.sh
	@$(PYTHON) -m pytest -m long --capture=no tests/e2e/operator/test_release_from_registry.py $(ARGS)

test-gangs: venv ## Gangs that Kubernetes 1.37 itself schedules: makes the cluster again with that release; the next `make cluster` takes it back (ARGS: for pytest)
	@NATIVE_GANGS=1 $(MAKE) --no-print-directory install
	@$(PYTHON) -m pytest -m long tests/e2e/scheduling/test_gangs.py -k kubernetes $(ARGS)

test-coscheduling: venv install ## Gangs of the scheduler plugins' real coscheduling; skipped where it cannot be had (ARGS: for pytest)
	@$(PYTHON) -m pytest -m long --capture=no tests/e2e/scheduling/test_gangs.py -k coscheduling $(ARGS)

matrix: venv ## The agent's and the library's tests on torch 2.4 to the newest, and on frameworks (ARGS: "2.4 deepspeed-oldest")
	@$(PYTHON) hack/matrix $(ARGS)

check: venv ## Format, lint, types, prose and layers only
	@hack/check.sh

fix: venv ## Format the code, repair what ruff can, and write what is generated
	@.venv/bin/ruff format
	@.venv/bin/ruff check --fix
	@PYTHONPATH=.:hack $(PYTHON) hack/reference

venv: ## The virtual environment .venv of requirements-dev.lock, with this project in it
	@hack/venv.sh

helm: ## Helm, for the tests of the chart, where it can be had
	@hack/helm.sh

etcd: ## An etcd for the tests of the etcd-v2 rendezvous, where Debian's packages can be had
	@hack/etcd.sh

kwok: ## kwok, for the fake nodes of `make scale`
	@hack/kwok.sh

cluster: ## The kind cluster elastic-pytorch: made, healed, or found well
	@hack/kind/cluster.sh

# A registry that the environment names is not asked for: `make install` loads its images onto the nodes.
images: $(if $(findstring command,$(origin REGISTRY)),,cluster) ## Build the operator's, the agent's and the worker's image, and load them onto the nodes (REGISTRY=host/path [PUSH=1]: for a registry, without a cluster)
	@$(if $(findstring command,$(origin REGISTRY)),REGISTRY="$(REGISTRY)" hack/images/publish.sh $(ARGS),hack/images/images.sh)

install: images ## The operator on the cluster, from its Helm chart
	@hack/install.sh

lock: venv ## Write both lock files again from pyproject.toml (UPGRADE=1: to the newest versions)
	@UPGRADE=$(UPGRADE) hack/lock.sh

version: venv ## Write VERSION=X.Y.Z, or X.Y.Z-dev, into every file that has the version
	@hack/version.sh "$(VERSION)"
	@PYTHONPATH=.:hack $(PYTHON) hack/reference

release: venv ## A release of the last commit in dist/: VERSION=X.Y.Z REGISTRY=host/path [PUSH=1] (docs/internals/releasing.md)
	@VERSION="$(VERSION)" REGISTRY="$(REGISTRY)" hack/release/release.sh

clean: ## Remove all that was made (KEEP_CACHE=1: but for what is slow to make)
	@KEEP_CACHE=$(KEEP_CACHE) hack/clean.sh
