# make demo        show the head of a job's Aurora script, then train here on two ranks
# make test        lint, types, spelling and the everyday tests; TEST_PROCESSES=1 runs one at a time
# make test-fast   those that start no ranks, containers or clusters: while one works
# make test-costly those that take the most of a machine
# make test-ci     the everyday tests and the costly ones, as .ci/run does
# make test-long   the others, which try more of what those show: about an hour
# make test-versions the launcher's tests with the oldest and the newest Python and dependencies that there are
# make bench       time the command line against bare Python, and training against a loop by hand and others
# make bench-proteins  what a tiny diffusion learns of real ones: a quarter of an hour; Debian's mmseqs2, mmseqs2-examples
# make bench-structures  what inverse folding learns of real ones, and preferences change: as long; mmseqs2
# make bench-causets  what the network learns of causal sets, beside a forest and estimators, with several seeds
# make docs        write the references in docs/ anew, from the code: tables of fields and modules, and the manual page
# make pictures    draw the pictures of the documents anew; `python -m docs.pictures.record`, film and page record them first
# make site        build the documents' site into site/; open site/index.html
# make lock        choose new versions for constraints.txt
# make clean       remove what these commands made
#
# Each sets up .venv first, from constraints.txt; later runs find it there. PYTHON names another
# interpreter, from 3.11 on: the versions in constraints.txt need that. TORCH_INDEX names the package index
# that PyTorch is taken from; without it, machines that have no NVIDIA device get PyTorch's CPU build.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
# The only version of torch that is ever installed here: never the newest by accident.
TORCH := torch==2.13.0
TORCH_INDEX ?=
CPU_INDEX := https://download.pytorch.org/whl/cpu
NVIDIA := $(wildcard /dev/nvidiactl /dev/dxg)
# What the tests of the launcher intelmpi run.
INTEL_MPI := impi-rt==2021.19.0
# What some tests start ranks, containers and a browser with, and unpack, and a program of each package, which tells
# whether it is there. CASTOFF_TESTS_NO_SYSTEM_PACKAGES=1 declines them.
SYSTEM_PACKAGES := chromium mpich openmpi-bin podman runc tmux unzip zstd
SYSTEM_PROGRAMS := chromium mpiexec.mpich mpiexec.openmpi podman runc tmux unzip zstd
ifeq ($(shell id -u),0) # only root can run a Slurm cluster of its own, or an sshd with users
SYSTEM_PACKAGES += slurmctld slurmd slurm-client slurmdbd mariadb-server munge iproute2 openssh-client openssh-server fish tcsh debootstrap
SYSTEM_PROGRAMS += slurmctld slurmd sbatch slurmdbd mariadbd munged ip ssh sshd fish tcsh debootstrap
endif

# Two sessions of pytest, so that each test process collects only half of the tests: those that load no torch, and
# those of WITH_TORCH. The former often wait, so they have more processes than two cores need. A process takes all
# tests that use a cluster's fixture, or a file at a time: see tests/grouping.py.
WITH_TORCH := tests/trainers tests/bench tests/examples tests/mistakes tests/systems tests/test_pictures.py \
  tests/test_references.py
PYTEST := tests/in_memory.sh .venv/bin/python -m pytest
side_by_side = $(if $(filter-out 1,$1),--numprocesses $1 --dist loadgroup --no-loadscope-reorder)
LIGHT_SESSION := $(PYTEST) $(call side_by_side,$(or $(TEST_PROCESSES),5)) --no-torch $(WITH_TORCH:%=--ignore=%)
TORCH_SESSION := $(PYTEST) $(call side_by_side,$(or $(TEST_PROCESSES),4)) $(WITH_TORCH)
# The second also runs if a test of the first fails.
sessions = code=0; $(LIGHT_SESSION) -m "$1" || code=$$?; $(TORCH_SESSION) -m "$1" || code=$$?; [ $$code = 0 ]

# What people read: code with its messages, and documents. Tests have misspellings to refuse.
PROSE := $(wildcard castoff/*.py) launcher trainers templates examples docs README.md CONTRIBUTING.md

READY := .venv/.ready
# A newer Debian, whose Slurm the tests of the cluster run a second time with.
DEBIAN := .venv/debian
DEBIAN_SUITE ?= sid
DEBIAN_PACKAGES := slurmctld slurmd slurm-client slurmdbd mariadb-server munge iproute2 procps hostname git \
  openssh-client openssh-server mpich openmpi-bin tmux unzip zstd
TORCH_READY := .venv/.torch
INTEL_MPI_READY := .venv/intelmpi/.ready
DEMO := castoff-demo
JOB := examples/causets_job.yaml
# A third of the sets, for half as long: a minute of two cores.
SMALLER := --set, data.causets.number=4000, --set, training.num_epochs=7
LOCALLY := --site local --nodes 1 --ranks-per-node 2 --set 'setup=[]' \
  --set 'command=[castoff, train, gnn, examples/causets.yaml, $(SMALLER)]'
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where daemons lie, which Debian's su and env -i leave out.
export PATH := $(or $(PATH),/usr/local/bin:/usr/bin:/bin):/usr/local/sbin:/usr/sbin
unexport PYTHONDONTWRITEBYTECODE # else each test process compiles all tests again

.PHONY: demo test test-fast test-costly test-ci test-long test-versions bench bench-proteins bench-structures bench-causets docs pictures site lock clean check system-packages

demo: $(READY)
	@export PATH="$$PWD/.venv/bin:$$PATH" XDG_STATE_HOME="$$PWD/$(DEMO)/state" PAGER=cat
	echo "== The job as Aurora's scheduler gets it: castoff render --head $(JOB) --site aurora"
	castoff render --head $(JOB) --site aurora
	echo
	echo "== The same job on this machine: castoff submit $(JOB) $(LOCALLY)"
	run=$$(castoff submit $(JOB) $(LOCALLY) --runs-dir $(DEMO) --json |
	  python -c 'import json, sys; print(json.load(sys.stdin)["directory"])')
	trap 'castoff cancel "$$run" >/dev/null; exit 130' INT TERM
	castoff wait "$$run" --timeout 1200 >/dev/null &
	waiting=$$!
	tail --quiet -n +1 -F --pid=$$waiting "$$run/logs/job-0.log" 2>/dev/null || true
	code=0
	wait $$waiting || code=$$?
	echo
	echo "== What became of it: castoff status"
	castoff status "$$run"
	if [ $$code -ne 0 ]; then exit $$code; fi
	test -s "$$(grep -o 'trained/[^ ]*curves.png' "$$run/logs/job-0.log")"

test: check
	@$(call sessions,not long and not costly)

test-fast: $(READY)
	@$(call sessions,not long and not real)

test-costly: $(READY) $(INTEL_MPI_READY) system-packages
	@$(call sessions,costly and not long)

# Both at once: a second session would collect the tests again.
test-ci: check
	@$(call sessions,not long)

test-long: check $(if $(filter 0,$(shell id -u)),$(DEBIAN)/.ready)
	@$(call sessions,long)
	if [ -e $(DEBIAN)/.ready ]; then
	  CASTOFF_TESTS_DEBIAN="$$PWD/$(DEBIAN)" $(PYTEST) $(call side_by_side,5) tests/cluster -m "not long and not costly"
	fi

$(DEBIAN)/.ready: $(READY) | system-packages
	@echo "Installing Debian $(DEBIAN_SUITE) in $(DEBIAN): about 0.4 GB to download, 1.3 GB on disk"
	rm -rf $(DEBIAN)
	packages="$(strip $(DEBIAN_PACKAGES))"
	debootstrap --variant=minbase --include="$${packages// /,}" $(DEBIAN_SUITE) $(DEBIAN) >$(DEBIAN).log
	chroot $(DEBIAN) apt-get clean
	chroot $(DEBIAN) slurmd -V
	touch $@

test-versions: $(READY)
	@.venv/bin/python -m tests.versions

check: $(READY) $(INTEL_MPI_READY) system-packages
	@export PATH="$$PWD/.venv/bin:$$PATH"
	ruff check
	ruff format --check
	codespell $(PROSE)
	codespell --dictionary docs/unwanted-words.txt $(PROSE)
	.venv/bin/python -m pytest --collect-only --quiet >/dev/null & # compiles all tests, once, beside mypy
	mypy --num-workers auto || { (( $$? == 2 )) && mypy; } || exit # on a busy machine its workers may not start in its 3 s
	wait

bench: $(READY)
	@.venv/bin/python -m bench

bench-proteins: $(READY)
	@.venv/bin/python -m bench.proteins

bench-structures: $(READY)
	@.venv/bin/python -m bench.inverse_folding

bench-causets: $(READY)
	@.venv/bin/python -m bench.causets

docs: $(READY)
	@.venv/bin/python -m docs.generate

pictures: $(READY)
	@.venv/bin/python -m docs.pictures

site: $(READY)
	@.venv/bin/python -m sphinx --quiet --fail-on-warning --keep-going --jobs auto -b html docs site
	echo "The site is in site/index.html"

# All of constraints.txt first: castoff's own build then finds its backend there, pinned too.
$(READY): pyproject.toml constraints.txt $(TORCH_READY)
	@echo "Installing the other packages into .venv, which takes some minutes: about 1 GB on disk"
	.venv/bin/python -m pip install -r constraints.txt
	echo "Installing castoff itself, in place"
	.venv/bin/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev,docs,dpo,gnn,sedd]'
	touch $@

# By itself, with pip's progress: on Linux, pip's default build is for NVIDIA devices and several times the size.
$(TORCH_READY): constraints.txt
	@if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
	  echo "constraints.txt needs Python 3.11 or newer: make PYTHON=python3.12 …" >&2
	  exit 1
	fi
	$(PYTHON) -m venv .venv
	has_cpu_build() { # [OPTION...] of pip's
	  [[ $$(.venv/bin/python -m pip --timeout 15 --retries 1 index versions torch "$$@" 2>/dev/null) == \
	    *"$(patsubst torch==%,%,$(TORCH))+cpu"* ]]
	}
	default="PyTorch's default build: on Linux about 2.8 GB to download, 4.6 GB on disk"
	cpu="PyTorch's CPU build, as there is no NVIDIA device: about 0.2 GB to download, 0.8 GB on disk"
	torch=$(TORCH) index="$(TORCH_INDEX)"
	if [ -n "$$index" ]; then
	  echo "Installing PyTorch from TORCH_INDEX"
	elif [ -n "$(NVIDIA)" ] || [ "$$(uname -s)" != Linux ]; then
	  echo "Installing $$default"
	elif has_cpu_build; then # pip's own settings name a place that has it
	  echo "Installing $$cpu"
	  torch=$(TORCH)+cpu
	elif has_cpu_build --index-url $(CPU_INDEX); then
	  echo "Installing $$cpu"
	  torch=$(TORCH)+cpu index=$(CPU_INDEX)
	else
	  echo "No CPU build of $(TORCH) at $(CPU_INDEX), or it cannot be reached." \
	    "TORCH_INDEX=URL make … takes PyTorch from another package index." >&2
	  echo "Installing $$default"
	fi
	.venv/bin/python -m pip install $${index:+--extra-index-url "$$index"} -c constraints.txt "$$torch"
	touch $@

# In a place of its own, since its bin/ would hide the system's mpiexec; without libfabric, which only
# programs need that call MPI.
$(INTEL_MPI_READY): $(READY)
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then
	  .venv/bin/python -m pip install --quiet --no-deps --upgrade --prefix .venv/intelmpi $(INTEL_MPI)
	fi
	mkdir -p $(@D)
	touch $@

system-packages:
	@if [ "$${CASTOFF_TESTS_NO_SYSTEM_PACKAGES:-0}" != 0 ]; then
	  echo "Declined: Debian packages $(SYSTEM_PACKAGES); the tests that need them are skipped."
	elif type $(SYSTEM_PROGRAMS) >/dev/null 2>&1; then
	  true
	elif [ "$$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	  echo "Some tests need these Debian packages: apt-get install $(SYSTEM_PACKAGES); or skip those tests: CASTOFF_TESTS_NO_SYSTEM_PACKAGES=1 make test" >&2
	  exit 1
	else
	  echo "Installing Debian packages: $(SYSTEM_PACKAGES) (CASTOFF_TESTS_NO_SYSTEM_PACKAGES=1 declines)"
	  policy=/usr/sbin/policy-rc.d # keeps the packages from starting their daemons
	  if [ ! -e $$policy ]; then
	    trap 'rm -f $$policy' EXIT
	    printf '#!/bin/sh\nexit 101\n' >$$policy
	    chmod 755 $$policy
	  fi
	  install=(env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends)
	  { "$${install[@]}" $(SYSTEM_PACKAGES) || { apt-get update --quiet=2 && "$${install[@]}" $(SYSTEM_PACKAGES); }; } >/dev/null
	fi

lock:
	@folder=$$(mktemp -d)
	trap 'rm -rf "$$folder"' EXIT
	$(PYTHON) -m venv "$$folder/venv"
	older='soupsieve<3' # newer ones need Python 3.11.5, and Debian 12 has 3.11.2
	"$$folder/venv/bin/python" -m pip install --quiet $(TORCH) "$$older" editables -e '.[dev,docs,dpo,gnn,sedd]'
	{
	  echo "# Every package of .venv, pinned. Made by: make lock"
	  "$$folder/venv/bin/python" -m pip freeze --exclude castoff | sed 's/+[a-z0-9.]*$$//'
	} >"$$folder/constraints.txt"
	cp "$$folder/constraints.txt" constraints.txt

clean:
	@rm -rf .venv $(DEMO) trained site build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
