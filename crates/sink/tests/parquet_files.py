"""Opens every file below a folder with pyarrow: each is whole, the records of each run are there from the first on without a gap, and
all that were acknowledged are among them.

usage: parquet_files.py FOLDER ACKNOWLEDGED. The second is a file of lines: a run, and how many of its records were acknowledged.
"""
import collections, pathlib, sys

import pyarrow.parquet as pq

sequences = collections.defaultdict(list)
paths = sorted(pathlib.Path(sys.argv[1]).rglob("*.parquet"))
for path in paths:
    table = pq.read_table(path, columns=["run_id", "sequence"], partitioning=None)
    assert table.num_rows == 200, (path, table.num_rows)
    for run, sequence in zip(*(table[name].to_pylist() for name in ("run_id", "sequence"))):
        sequences[run].append(sequence)

for line in pathlib.Path(sys.argv[2]).read_text().splitlines():
    run, acknowledged = map(int, line.split())
    there = sorted(sequences.pop(run, []))
    assert there == list(range(len(there))), f"run {run} has gaps or copies"
    assert acknowledged <= len(there), f"run {run}: {acknowledged} were acknowledged, {len(there)} are there"
assert not sequences, f"runs that nobody made: {sorted(sequences)}"
print(f"{len(paths)} files open")
