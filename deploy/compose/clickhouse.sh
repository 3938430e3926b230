#!/bin/sh
# Makes Weir's tables; ClickHouse's image runs it at the first start. It runs files of SQL by itself, but in the database `default`.
set -eu

# A mount in the server's own folder would be taken from its owner by the image.
cp /weir/weir_store.proto /var/lib/clickhouse/format_schemas/
for file in sockets datagrams flows rollup rollup_flows retention retention_flows kafka kafka_flows; do
    clickhouse-client --host 127.0.0.1 --user "$CLICKHOUSE_USER" --password "$CLICKHOUSE_PASSWORD" --database "$CLICKHOUSE_DB" \
        --multiquery <"/weir/clickhouse/$file.sql"
done
