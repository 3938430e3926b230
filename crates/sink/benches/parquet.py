"""How long pyarrow takes to write the rows of a Parquet file of ours, from Arrow's columns in memory into a file in memory, with the
codec, the encodings and the statistics that ours has, and with its own encodings. CPU time of the process, in the best of its rounds.

usage: parquet.py FILE [ROUNDS]
"""
import sys, time

import pyarrow as pa, pyarrow.parquet as pq

file = pq.ParquetFile(sys.argv[1])
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 20
table = file.read()
texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
numbers = [field.name for field in table.schema if pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)]
ours = {"use_dictionary": texts, "column_encoding": {name: "DELTA_BINARY_PACKED" for name in numbers}}


def write(**how):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=1, row_group_size=65536, write_statistics=True, **how)
    return sink.getvalue().size


for what, how in ("our encodings", ours), ("its own encodings", {}):
    times = []
    for _ in range(rounds):
        began = time.process_time()
        size = write(**how)
        times.append(time.process_time() - began)
    rate = table.num_rows / min(times)
    print(f"pyarrow {pa.__version__}, {what}: {1e9 / rate:.0f} ns a row, {rate:.0f} rows/s, {size / table.num_rows:.1f} bytes a row")
