#!/usr/bin/env bash
# The Helm chart: what it makes is valid by the schema (offline), its parts fit each other, and its defaults are deploy/kubernetes.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

for tool in helm kubernetes-validate; do
    have "$tool" || { skip "chart: $tool is not installed"; finish; exit; }
done
CHART=deploy/helm/weir
# A helm that `go install` made takes an old cluster for granted.
KUBERNETES=(--kube-version 1.31)
COLLECTOR=(--set "collector.enabled=true,relay.enabled=false")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# render FILE OPTION...: what the chart makes.
render() { helm template weir "$CHART" "${KUBERNETES[@]}" "${@:2}" >"$work/$1"; }
# The same as the Deployment's configuration, with the admin port on the node's loopback.
sed -n '/^  weir.toml: |$/,/^---$/ { s/^    //p }' deploy/kubernetes/weir.yaml | sed 's/0\.0\.0\.0:9464/127.0.0.1:9464/' >"$work/on-host.toml"
ON_HOST=(--set relay.kind=DaemonSet)
is_on_the_host() {
    weir-python - "$work/daemon-set.yaml" <<'PYTHON'
import sys, yaml
objects = {o["kind"]: o for o in yaml.safe_load_all(open(sys.argv[1])) if o}
assert set(objects) == {"ConfigMap", "DaemonSet"}, set(objects)
spec = objects["DaemonSet"]["spec"]["template"]["spec"]
assert spec["hostNetwork"]
(container,) = spec["containers"]
assert all(container[probe]["httpGet"]["host"] == "127.0.0.1" for probe in ("livenessProbe", "readinessProbe", "startupProbe"))
PYTHON
}
# refused MESSAGE OPTION...: rendering fails, and says why.
refused() { ! render refused.yaml "${@:2}" 2>"$work/refused" && cat "$work/refused" && grep -qF "$1" "$work/refused"; }
has_the_version() { [ "$(sed -n 's/^version: //p' $CHART/Chart.yaml)" = "$(version)" ] && [ "$(sed -n 's/^appVersion: //p' $CHART/Chart.yaml)" = "$(version)" ]; }

check "chart: lint" helm lint --strict "${KUBERNETES[@]}" "$CHART"
check "chart: the workspace's version" has_the_version
check "chart: renders the relay" render weir.yaml
check "chart: renders the collector" render weir-sockets.yaml "${COLLECTOR[@]}"
for name in weir weir-sockets; do
    check "chart: schema of $name" kubernetes-validate --strict "$work/$name.yaml"
    check "chart: probes, paths, times, limits and privileges of $name" weir-python scripts/check_manifests.py "$work/$name.yaml"
    check "chart: the defaults of $name are those of deploy/kubernetes" weir-python scripts/check_chart.py "$work/$name.yaml" "deploy/kubernetes/$name.yaml"
done
check "chart: renders the relay as a DaemonSet" render daemon-set.yaml "${ON_HOST[@]}" --set-file "relay.config=$work/on-host.toml"
check "chart: schema of the DaemonSet" kubernetes-validate --strict "$work/daemon-set.yaml"
check "chart: the DaemonSet is on the host's network, and so are its probes" is_on_the_host
check "chart: an admin port that all the network reaches is refused on the host" refused 'listen = "127.0.0.1:9464"' "${ON_HOST[@]}"
check "chart: another kind is refused" refused "Deployment or DaemonSet" --set relay.kind=StatefulSet
finish
