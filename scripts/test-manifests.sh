#!/usr/bin/env bash
# The Kubernetes manifests and the compose file: valid by the schema (offline), and the parts fit each other and the config inside.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

have kubernetes-validate || { skip "manifests: kubernetes-validate is not installed"; finish; exit; }

for file in deploy/kubernetes/*.yaml; do
    check "schema of $file" kubernetes-validate --strict "$file"
    check "probes, paths, times, limits and privileges of $file" weir-python scripts/check_manifests.py "$file"
done
check "services, ports, paths and topics of deploy/compose" weir-python scripts/check_manifests.py deploy/compose/compose.yaml
finish
