//! The table of totals over a run's flow and counter rows.

use crate::schema::schema;
use crate::{RecordKind, SCHEMA_VERSION};

schema! {
    /// How many flow and counter rows a run has made, and of what. Everything is since the run began.
    ///
    /// `datagrams = datagrams_read + datagrams_duplicate + datagrams_malformed + datagrams_agent_limit`.
    FlowTotals<'a> FlowTotalsIndex finish nothing

    identity "Which run, and of which host." {
        record_kind: RecordKind = 1, "", "", "What the row is about: `flow_totals`.";
        time_unix_ns: fixed64 = 2, "ns", "", "When the totals were made; since 1970, UTC.";
        host: text = 18, "", "", "The name of the host, as on socket records.";
        tags: tags = 20, "", "", "Names and values from the configuration.";
        run_id: fixed64 = 21, "", "", "Random number of this run, as on its rows.";
        host_id: text = 22, "", "", "Which host it is, as on socket records.";
        schema_version: u8 = 24, "", "", "Version of the tables, as on socket records.";
    }

    totals "What was made, and of what." {
        next_sequence: u64 = 900, "", "",
            "Flow and counter rows that the run had made: the `sequence` of the next one. A store has all of them if it has as many \
             different rows of this `run_id` with a smaller `sequence`, in both tables together.";
        flow_records: u64 = 901, "rows", "", "Of these, rows of flows.";
        counter_records: u64 = 902, "rows", "", "Of these, rows of counters and agents.";
        merged_flows: u64 = 903, "flows", "",
            "Flows that have no row of their own, because there were more than rows may be made: `merged` rows have their sums.";
        counters_skipped: u64 = 904, "samples", "", "Counter samples without a row, because there were more than rows may be made.";
        samples: u64 = 905, "samples", "", "Samples that are in the rows of flows so far, over all definitions.";
        datagrams: u64 = 910, "datagrams", "", "sFlow datagrams that were given to the analysis.";
        datagrams_read: u64 = 911, "datagrams", "", "Those whose samples were read.";
        datagrams_duplicate: u64 = 912, "datagrams", "", "Those that had been read before.";
        datagrams_malformed: u64 = 913, "datagrams", "", "Those without a readable header.";
        datagrams_agent_limit: u64 = 914, "datagrams", "", "Those of agents beyond `agents_max`.";
        flow_samples: u64 = 915, "samples", "", "Flow samples that are in the figures.";
        counter_samples: u64 = 916, "samples", "", "Counter samples.";
        dropped_packets: u64 = 917, "packets", "", "Dropped packets that agents told of.";
    }
}

impl FlowTotals<'_> {
    /// A row with only kind and version set.
    pub fn new() -> Self {
        FlowTotals {
            record_kind: Some(RecordKind::FLOW_TOTALS),
            schema_version: Some(SCHEMA_VERSION),
            ..FlowTotals::default()
        }
    }
}

fn nothing(_: &mut FlowTotals<'_>) {}
