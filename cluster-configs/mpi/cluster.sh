#!/bin/bash
# A silchunk command on processes that MPI starts, at a prompt or in a batch job:
#   bash cluster.sh bound points.npy --checkpoint bound-of-points --time-limit 55m
# Code 75 is a pause: the same again goes on.
set -euo pipefail

MPIRUN=${MPIRUN:-mpirun}                  # and its options: "srun --mpi=pmix", "mpirun --hostfile h"
RANKS=${RANKS:-5}                         # the scheduler, and a worker for each of the others
THREADS=${THREADS:-4}                     # panels at once in each worker
WORKER_MEMORY=${WORKER_MEMORY:-15GiB}     # of each worker
INTERFACE=${INTERFACE:-lo}                # network between the hosts; lo is this machine alone
SCRATCH=${SCRATCH:-$PWD/silchunk-scratch} # seen by all hosts under this path

mkdir -p "$SCRATCH"
folder=$(mktemp -d "$SCRATCH/cluster-XXXXXX")
export DASK_TEMPORARY_DIRECTORY=$SCRATCH
export DASK_SILCHUNK__LOST_TIMEOUT=${DASK_SILCHUNK__LOST_TIMEOUT:-"10 minutes"}

read -ra launcher <<< "$MPIRUN"
# Even without a dashboard Dask answers HTTP, on all networks unless told where.
"${launcher[@]}" -n "$RANKS" dask-mpi --scheduler-file "$folder/scheduler.json" \
    --scheduler-port 0 --interface "$INTERFACE" --nthreads "$THREADS" \
    --memory-limit "$WORKER_MEMORY" --local-directory "$folder" --no-dashboard \
    --dashboard-address 127.0.0.1:0 --worker-options '{"dashboard_address": "127.0.0.1:0"}' &
ranks=$!
# shellcheck disable=SC2329 # the trap calls it
finish() {
    kill "$ranks" 2> /dev/null || true
    wait "$ranks" || true
    rm -rf "$folder"
}
trap finish EXIT
until [[ -s $folder/scheduler.json ]]; do
    kill -0 "$ranks" # ends the script if they have ended, whose message stands above
    sleep 1
done

silchunk "$@" --scheduler-file "$folder/scheduler.json" &
child=$!
# SIGTERM and SIGUSR1 are for silchunk, which pauses; then the ranks end.
signalled=''
trap 'signalled=yes; kill -TERM "$child" 2> /dev/null || true' TERM USR1
code=0
wait "$child" || code=$?
while [[ -n $signalled ]]; do # the signal ended `wait`, not the child: wait for it again
    signalled=''
    code=0
    wait "$child" || code=$?
done
exit "$code"
