#!/usr/bin/env bash
# run.sh WEIR CONFIG: starts the daemon in the foreground, after saying how to try it.
set -euo pipefail
weir=$1 config=$2
mkdir -p weir-data
if [ "$config" = examples/quickstart.toml ]; then
    cat >&2 <<TEXT

Weir listens on 127.0.0.1:5514 and writes every datagram to weir-data/old.log and weir-data/new.log. Every 10 seconds it
writes the state of this machine's TCP sockets to weir-data/sockets.jsonl, as far as this user's privileges reach.
In another terminal:

  send a line        logger -n 127.0.0.1 -P 5514 -d 'hello weir'
  see both copies    tail weir-data/old.log weir-data/new.log
  see TCP sockets    tail weir-data/sockets.jsonl
  ask about some     curl --unix-socket weir-data/admin.sock 'http://localhost/sockets?filter=dport+=+:443'
  see the ledger     $weir ledger        (or http://127.0.0.1:9464/ledger)
  see the metrics    http://127.0.0.1:9464/metrics

Ctrl-C stops it: it drains and prints the last ledger.

TEXT
fi
exec "$weir" run -c "$config"
