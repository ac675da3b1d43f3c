# shellcheck shell=bash
# Sourced by the batch scripts, inside their job and in the folder it was submitted from, with `code`
# = the folder of Farsight's code: checks the allocation, says where the ranks meet, and defines
# `ranks`, which starts one task per rank, ends the job as they ended, and requeues it if they ask.

refuse() {
  rm -f "${history:-}"
  echo "farsight: $*" >&2
  exit 2
}

set +u # the `module` command of some sites reads unset variables
srun_options=() inside=()
# shellcheck source=slurm/site.env
source "$code/slurm/site.env"
set -u

# The bare id of an array's last task is also that of the whole array.
job=${SLURM_JOB_ID:-}
[ -z "${SLURM_ARRAY_JOB_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID:-}
[[ $job =~ ^[0-9]+(_[0-9]+)?$ ]] || refuse "no job of SLURM: its number is '$job'"
restarts=${SLURM_RESTART_COUNT:-0} most=${FARSIGHT_MAX_REQUEUES:-20}

# What the ranks leave to say how they ended, and how far each start of this job came.
export FARSIGHT_MARKER=$PWD/slurm-$job.marker
history=slurm-$job.progress
[ "$restarts" != 0 ] || rm -f "$history"

[ -n "${SLURM_NTASKS_PER_NODE:-}" ] ||
  refuse "submit with --ntasks-per-node=N (ranks on each node) instead of --ntasks"
tasks=${SLURM_NTASKS:-} world=$((SLURM_JOB_NUM_NODES * SLURM_NTASKS_PER_NODE))
[ "${tasks:-$world}" = "$world" ] ||
  refuse "--ntasks=$tasks does not fit --nodes=$SLURM_JOB_NUM_NODES x" \
    "--ntasks-per-node=$SLURM_NTASKS_PER_NODE; give --ntasks-per-node (and --nodes) only"
if [ ${#srun_options[@]} = 0 ] && [ ${#inside[@]} = 0 ]; then
  [ -f "$FARSIGHT_VENV/bin/activate" ] ||
    refuse "no virtual environment in $FARSIGHT_VENV:" \
      "run \`make install\`, or set FARSIGHT_VENV in slurm/site.env"
  # shellcheck source=/dev/null
  source "$FARSIGHT_VENV/bin/activate"
fi

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
[ -n "${hosts[0]:-}" ] || refuse "scontrol names no host for SLURM_JOB_NODELIST=$SLURM_JOB_NODELIST"
export MASTER_ADDR=${hosts[0]}
# The range lies below the ports that Linux hands out by itself. This script runs on the first host:
# a port that somebody listens at there is left to him.
port=$((SLURM_JOB_ID % 10000))
while (exec 3<>"/dev/tcp/127.0.0.1/$((20000 + port))") 2>/dev/null; do
  port=$(((port + 1) % 10000))
done
export MASTER_PORT=$((20000 + port))

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

# ranks ARGUMENT...: `python ARGUMENT...` once per rank; when one fails, all are ended. Ends the job.
ranks() {
  local step code=0 told=0 progress=""
  echo "farsight: job $job, start $((restarts + 1)), $SLURM_JOB_NUM_NODES nodes x" \
    "$SLURM_NTASKS_PER_NODE ranks x $threads threads, meeting at $MASTER_ADDR:$MASTER_PORT"
  rm -f "$FARSIGHT_MARKER"
  srun --kill-on-bad-exit=1 "${srun_options[@]}" "${inside[@]}" python "$@" &
  step=$!
  # In the background, since bash runs a trap only between commands. Where SLURM signals this script
  # and not the ranks, srun passes it on.
  trap 'kill -USR1 "$step" 2>/dev/null || true' USR1 TERM
  while kill -0 "$step" 2>/dev/null; do
    wait "$step" && code=0 || code=$?
  done
  # srun's own code is that of a kill as soon as one rank fails
  if [ -s "$FARSIGHT_MARKER" ]; then
    read -r told progress <"$FARSIGHT_MARKER" || true
    rm -f "$FARSIGHT_MARKER"
    [[ $told =~ ^[0-9]+$ ]] && code=$told
  fi
  if [ "$told" = 85 ]; then
    requeue "$progress"
  else
    rm -f "$history"
  fi
  exit "$code"
}

# requeue PROGRESS: start this job again, unless it was started often enough or in vain. PROGRESS
# says when it stopped, such as "after step 7".
requeue() {
  local again="it stopped $1; submit it again to go on from there"
  echo "$1" >>"$history"
  mapfile -t starts < <(tail -n 3 "$history")
  # scancel is a SIGTERM like that of a preemption, but is meant for good: SLURM ends the job already,
  # which one that is preempted, or comes near its limit, still runs
  if [[ "$(scontrol show job -o "$job" 2>/dev/null)" =~ JobState=(COMPLETING|CANCELLED) ]]; then
    echo "farsight: job $job is being ended: $again" >&2
  elif ((restarts >= most)); then
    echo "farsight: job $job was started again $restarts times already, which is the most" \
      "(FARSIGHT_MAX_REQUEUES in slurm/site.env): $again" >&2
  elif [ ${#starts[@]} = 3 ] && [ "${starts[0]}" = "$1" ] && [ "${starts[1]}" = "$1" ]; then
    echo "farsight: job $job was started again twice and stopped $1 each time: it ends. One step" \
      "and its checkpoint must fit between two signals: give it more time" >&2
  elif ! scontrol requeue "$job"; then
    echo "farsight: scontrol could not requeue job $job: $again" >&2
  else
    echo "farsight: job $job is requeued; it stopped $1"
    trap - USR1 TERM
    sleep 120 # SLURM ends this script here
    return
  fi
  rm -f "$history"
}
