#!/usr/bin/env bash
# A SLURM cluster on this host alone, for tests: `lab.sh up`, `lab.sh down` (as root; needs slurmctld,
# slurmd, slurm-client and munge). Every daemon listens on loopback, and all that it writes is in $LAB.
# After `up`, SLURM's commands find it by SLURM_CONF=$LAB/slurm.conf.
#
# Nodes lab1, lab2, ... are several slurmd of this host. The partition `low` is preempted by `high`.
# GPUs are plain files that stand in for devices, so that --gpus-per-node is accepted.
set -euo pipefail
: "${LAB:?folder of the cluster}"
nodes=${NODES:-3} cpus=${CPUS:-2} gpus=${GPUS:-2} grace=${GRACE:-40}
# what SLURM does before a preemption: preempt_send_user_signal, or nothing
warning=${WARNING-preempt_send_user_signal}
port=${PORT:-16817}
export SLURM_CONF=$LAB/slurm.conf
mark="# farsight lab"

# A process that has ended, but that nobody has waited for, has no executable.
alive() { [ -s "$1" ] && readlink "/proc/$(cat "$1")/exe" >/dev/null 2>&1; }

write_conf() {
  local host node
  host=$(hostname -s)
  mkdir -p "$LAB"/{run,log,state,spool,munge}
  # cred_expire is also how long a requeued job waits. RealMemory, or --mem would be refused.
  cat >"$SLURM_CONF" <<CONF
ClusterName=lab
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$LAB/munge/socket,cred_expire=5
${warning:+SlurmctldParameters=$warning}
StateSaveLocation=$LAB/state
SlurmdSpoolDir=$LAB/spool/%n
SlurmctldPidFile=$LAB/run/slurmctld.pid
SlurmdPidFile=$LAB/run/slurmd.%n.pid
SlurmctldLogFile=$LAB/log/slurmctld.log
SlurmdLogFile=$LAB/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
MinJobAge=3600
MpiDefault=none
GresTypes=gpu
CONF
  for node in $(seq "$nodes"); do
    echo "NodeName=lab$node NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 100 + node))" \
      "CPUs=$cpus RealMemory=8000 Gres=gpu:$gpus" >>"$SLURM_CONF"
    # ranks look for each other by these names
    grep -q "[[:space:]]lab$node $mark" /etc/hosts || echo "127.0.0.1 lab$node $mark" >>/etc/hosts
  done
  cat >>"$SLURM_CONF" <<CONF
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=$grace
PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
CONF
  for node in $(seq 0 $((gpus - 1))); do : >"$LAB/gpu$node"; done
  echo "NodeName=lab[1-$nodes] Name=gpu File=$LAB/gpu[0-$((gpus - 1))]" >"$LAB/gres.conf"
}

up() {
  local munge=$LAB/munge node ready
  write_conf
  [ -s "$munge/key" ] || head -c 128 /dev/urandom >"$munge/key"
  chmod 400 "$munge/key"
  chmod 755 "$LAB" "$munge"
  chown -R munge:munge "$munge"
  alive "$munge/pid" ||
    runuser -u munge -- munged --force --key-file="$munge/key" --socket="$munge/socket" \
      --pid-file="$munge/pid" --log-file="$munge/log" --seed-file="$munge/seed"
  alive "$LAB/run/slurmctld.pid" || slurmctld
  for node in $(seq "$nodes"); do
    alive "$LAB/run/slurmd.lab$node.pid" || slurmd -N "lab$node"
  done
  for _ in $(seq 100); do
    ready=$(sinfo -h -N -p low -o %t 2>/dev/null | grep -c -E '^(idle|mix|alloc)$' || true)
    if [ "$ready" = "$nodes" ]; then return; fi
    sleep 0.2
  done
  echo "the cluster did not come up; see $LAB/log" >&2
  return 1
}

down() {
  local file hosts
  scancel -u root 2>/dev/null || true
  sleep 1
  for file in "$LAB"/run/slurmd.*.pid "$LAB/run/slurmctld.pid" "$LAB/munge/pid"; do
    if alive "$file"; then kill "$(cat "$file")"; fi
  done
  sleep 0.5
  hosts=$(grep -v "$mark\$" /etc/hosts)
  echo "$hosts" >/etc/hosts # not replaced: it may be a mount
  rm -rf "${LAB:?}"
}

case ${1:-} in
up | down) "$1" ;;
*)
  echo "usage: LAB=FOLDER $0 up|down" >&2
  exit 2
  ;;
esac
