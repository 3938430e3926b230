#!/bin/sh
# Creates Weir's tables; ClickHouse's image runs it at the first start. The image also runs SQL files, but in the database `default`.
set -eu

# If this were mounted in the server's own folder, the image would change its owner.
cp /weir/weir_store.proto /var/lib/clickhouse/format_schemas/
for file in sockets datagrams flows rollup rollup_flows retention retention_flows kafka kafka_flows; do
    clickhouse-client --host 127.0.0.1 --user "$CLICKHOUSE_USER" --password "$CLICKHOUSE_PASSWORD" --database "$CLICKHOUSE_DB" \
        --multiquery <"/weir/clickhouse/$file.sql"
done
