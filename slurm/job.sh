# shellcheck shell=bash
# Sourced by the batch scripts, inside their job and in the top folder of Farsight: checks the
# allocation, says where the ranks meet, and defines `ranks`, which starts one task per rank.

refuse() {
  echo "farsight: $*" >&2
  exit 2
}

set +u # the `module` command of some sites reads unset variables
# shellcheck source=slurm/site.env
source slurm/site.env
set -u

[ -n "${SLURM_NTASKS_PER_NODE:-}" ] ||
  refuse "submit with --ntasks-per-node=N (ranks on each node) instead of --ntasks"
[ -f "$FARSIGHT_VENV/bin/activate" ] ||
  refuse "no virtual environment in $FARSIGHT_VENV:" \
    "run \`make install\`, or set FARSIGHT_VENV in slurm/site.env"
# shellcheck source=/dev/null
source "$FARSIGHT_VENV/bin/activate"

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
[ -n "${hosts[0]:-}" ] || refuse "scontrol names no host for SLURM_JOB_NODELIST=$SLURM_JOB_NODELIST"
export MASTER_ADDR=${hosts[0]}
# Jobs on one node must not meet; the range lies below the ports that Linux hands out by itself.
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))

threads=${SLURM_CPUS_PER_TASK:-1}
# Since SLURM 22.05 srun does not take --cpus-per-task over from sbatch.
export SRUN_CPUS_PER_TASK=$threads OMP_NUM_THREADS=$threads PYTHONUNBUFFERED=1

# The configuration must describe the allocation; these settings come last and so win.
# shellcheck disable=SC2034
allocation=(
  "trainer.nodes=$SLURM_JOB_NUM_NODES"
  "trainer.processes=$SLURM_NTASKS_PER_NODE"
  "trainer.threads=$threads"
)

# ranks ARGUMENT...: `python ARGUMENT...` once per rank; when one fails, all are ended.
ranks() {
  echo "farsight: job $SLURM_JOB_ID, $SLURM_JOB_NUM_NODES nodes x $SLURM_NTASKS_PER_NODE ranks" \
    "x $threads threads, meeting at $MASTER_ADDR:$MASTER_PORT"
  srun --kill-on-bad-exit=1 python "$@"
}
