# Each target does all the set-up it needs, once: a virtual environment in .venv, made anew when the
# project's dependencies change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: demo docs test test-slow nightly nightly-tests nightly-cluster nightly-calibration test-cluster test-cluster-slurm test-cluster-training test-cluster-storms test-cluster-ray test-cluster-others faults lint readme gallery screenshots pictures bench bench-cluster bench-store paper-small paper-smoke paper-decay paper-trend clean

demo: $(VENV)/run.stamp
	$(BIN)/scalevec demo

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not nightly"

# Trainings, faults and sweeps from end to end, which take seconds to a minute each; some wait for a process to end.
test-slow: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "slow and not nightly"

# What every change cannot wait for, before an issue is called resolved: longer tests, every fault, the coverage of
# intervals, the small sweeps. Hours: make -k -j 3 --output-sync=target nightly runs parts side by side.
nightly: nightly-tests nightly-cluster nightly-calibration faults paper-smoke
	$(MAKE) paper-small  # last: it writes the kept results that the tests read

nightly-tests: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 2 --dist worksteal -m nightly

nightly-cluster: $(VENV)/dev.stamp
	tests/cluster/namespace.sh $(BIN)/python -m pytest -m nightly tests/cluster

# Half an hour on two cores; the 2,000 data sets of benchmarks/reference/calibration.md take eight.
nightly-calibration: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/calibration.py 100

# A real SLURM, Ray and PostgreSQL, started and stopped by the tests where the only network interface is lo. Five
# parts, each with daemons of its own, the longest first: make -j 5 test-cluster runs them side by side.
CLUSTER_SLURM := $(addprefix tests/cluster/test_,slurm_contract.py slurm_executor.py fault_campaign.py)
CLUSTER_TRAINING := $(addprefix tests/cluster/test_,slurm_training.py submit.py)
CLUSTER_STORMS := $(addprefix tests/cluster/test_slurm_,storms.py cancel.py limits.py sent_code.py)
CLUSTER_RAY := $(addprefix tests/cluster/test_,ray_executor.py ray_training.py two_users_slurm.py)
test-cluster: test-cluster-others test-cluster-ray test-cluster-training test-cluster-storms test-cluster-slurm

test-cluster-slurm: $(VENV)/dev.stamp
	tests/cluster/namespace.sh $(BIN)/python -m pytest $(CLUSTER_SLURM)

test-cluster-training: $(VENV)/dev.stamp
	tests/cluster/namespace.sh $(BIN)/python -m pytest $(CLUSTER_TRAINING)

test-cluster-storms: $(VENV)/dev.stamp
	tests/cluster/namespace.sh $(BIN)/python -m pytest $(CLUSTER_STORMS)

test-cluster-ray: $(VENV)/dev.stamp
	tests/cluster/namespace.sh $(BIN)/python -m pytest $(CLUSTER_RAY)

test-cluster-others: $(VENV)/dev.stamp
	tests/cluster/namespace.sh $(BIN)/python -m pytest tests/cluster \
		$(addprefix --ignore=,$(CLUSTER_SLURM) $(CLUSTER_TRAINING) $(CLUSTER_STORMS) $(CLUSTER_RAY))

# Longer fault campaigns: FAULTS on this machine, on SLURM and on Ray; each adds a line to the record.
FAULTS ?= 20
faults: export SCALEVEC_FAULTS := $(FAULTS)
faults: export SCALEVEC_FAULTS_RECORD := $(CURDIR)/benchmarks/reference/faults.jsonl
faults: $(VENV)/dev.stamp
	tests/cluster/namespace.sh $(BIN)/python -m pytest -m "" tests/cluster/test_fault_campaign.py

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/voice.py

readme: $(VENV)/run.stamp
	$(BIN)/python tools/regenerate.py
	$(BIN)/python tools/small_results.py
	$(BIN)/python tools/documentation.py
	$(BIN)/python tools/paper_sweeps.py
	$(BIN)/python tools/gallery.py

# docs/gallery.md: every figure there is, in one column of a paper, from kept results.
gallery: $(VENV)/run.stamp
	$(BIN)/python tools/gallery.py

# The pictures of the README: a sweep that is watched while it runs, and a report (two minutes).
pictures: $(VENV)/dev.stamp
	$(BIN)/python tools/pictures.py

# The documentation as a site that opens from files, with the reference that follows from the code: build/site/index.html.
docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# Reports of kept results in a real Chromium, as pictures to be looked at.
screenshots: $(VENV)/dev.stamp
	$(BIN)/python tools/screenshots.py

# The small siblings of the paper's experiments; paper-small-NAME runs one of sweeps/small, paper-smoke a cut of each.
# paper-small leaves out the two that take hours each: whether output-norm vectors should decay, whether the gain grows.
# Sweeps go on from the rungs that are kept, and end with the rung UNTIL if one is given; JOBS is how
# many trials are trained at a time, NAMES which sweeps where not all are meant.
paper-small paper-smoke: paper-%: $(VENV)/run.stamp
	$(BIN)/python tools/paper.py $* $(NAMES)

paper-decay paper-trend: paper-%: paper-small-%

paper-small-%: $(VENV)/run.stamp
	$(BIN)/python tools/paper.py small $* $(if $(UNTIL),--until $(UNTIL)) $(if $(JOBS),--jobs $(JOBS))

bench: $(VENV)/bench.stamp
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/scale_plan.py
	$(BIN)/python benchmarks/fitting.py

# What executors cost over bare libraries, on a real SLURM too.
bench-cluster: $(VENV)/dev.stamp
	tests/cluster/namespace.sh $(BIN)/python tests/cluster/with_slurm.py $(BIN)/python benchmarks/overhead.py

# The index of 100,000 trials, on SQLite and on a real PostgreSQL.
bench-store: $(VENV)/dev.stamp
	tests/cluster/namespace.sh $(BIN)/python tests/cluster/with_postgres.py $(BIN)/python benchmarks/store_scale.py

clean:
	rm -rf $(VENV)

# constraints.txt pins every version.
$(VENV)/run.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train]'
	touch $@

$(VENV)/%.stamp: $(VENV)/run.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	touch $@
