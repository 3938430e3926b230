#!/usr/bin/env bash
# The shell scripts parse, and shellcheck has nothing to say about them; the verdicts in the documents are those of their data.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

mapfile -t scripts < <(find scripts bench deploy -name '*.sh' 2>/dev/null | sort; echo .ci/run; find deploy/packages/debian -name 'p*')
if have shellcheck; then
    for script in "${scripts[@]}"; do
        check "shellcheck $script" shellcheck --external-sources "$script"
    done
else
    skip "shellcheck is not installed"
fi
if have python3; then
    check "verdicts of docs/udp-vs-tcp.md" python3 docs/udp-vs-tcp/verdicts.py --check
else
    skip "python3 is not installed"
fi
finish
