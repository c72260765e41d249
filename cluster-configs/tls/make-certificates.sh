#!/bin/bash
# Make what the processes of one Dask cluster know each other by, into a new folder that only you
# can read: ca.pem, certificate.pem, key.pem, and dask.yaml, Dask's settings that name them.
#
#   bash make-certificates.sh FOLDER [DAYS]
#
# FOLDER must not exist, and must lie where all hosts of the job see it. DAYS, 30 unless given, is
# how long the certificate is valid. Then, for scheduler, workers and silchunk alike:
#
#   export DASK_CONFIG=FOLDER/dask.yaml
set -euo pipefail
umask 077

if [[ $# -lt 1 || $# -gt 2 || ! "${2:-30}" =~ ^[1-9][0-9]{0,3}$ ]]; then
    echo "usage: make-certificates.sh FOLDER [DAYS], a new folder and up to 9999 days" >&2
    exit 64
fi
folder="$1"
days="${2:-30}"
settings="$(cat -- "$(dirname -- "${BASH_SOURCE[0]}")/dask.yaml")"
command -v openssl > /dev/null || { echo "openssl is not installed here" >&2; exit 69; }

[[ "$folder" == /* ]] || folder="$PWD/$folder"
mkdir "$folder" # fails where something is there: no key is ever overwritten
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat > made.cnf << 'END'
[req]
prompt = no
distinguished_name = name
[name]
CN = silchunk job
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[member]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
END
{
    # The two need names of their own, or the certificate would look as if it had signed itself.
    openssl ecparam -name prime256v1 -genkey -noout -out ca-key.pem
    openssl req -x509 -config made.cnf -extensions authority -subj "/CN=silchunk authority" \
        -key ca-key.pem -sha256 -days "$days" -out ca.pem
    openssl ecparam -name prime256v1 -genkey -noout -out key.pem
    openssl req -new -config made.cnf -key key.pem -sha256 -out request.pem
    openssl x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -set_serial 1 -sha256 \
        -days "$days" -extfile made.cnf -extensions member -out certificate.pem
    openssl verify -CAfile ca.pem certificate.pem
} > openssl.log 2>&1 || { cat openssl.log >&2; exit 70; }
# Without the authority's key, no other certificate can ever be made that this cluster trusts.
rm ca-key.pem request.pem made.cnf openssl.log

quoted="${folder//\'/\'\'}" # as YAML has it between single quotes
while IFS= read -r line; do
    [[ "$line" == *FOLDER/* ]] && line="${line%%FOLDER/*}$quoted/${line#*FOLDER/}"
    printf '%s\n' "$line"
done <<< "$settings" > dask.yaml

trap - EXIT
echo "Valid for $days days. For scheduler, workers and silchunk: export DASK_CONFIG=$folder/dask.yaml"
