//! The table of the totals of one poll.

use crate::schema::schema;

schema! {
    /// What one poll visited, and what became of it. Per poll, except where "so far" is said:
    ///
    /// `sockets_visited = sockets_emitted + sockets_unchanged + sockets_filtered + sockets_sampled + sockets_dropped_*`, and
    /// `closes_observed = closes_emitted + closes_filtered + closes_undecided + closes_never_connected + closes_elsewhere +
    /// closes_sampled + closes_dropped_*`.
    PollTotals<'a> TotalsIndex finish nothing

    poll "Which poll." {
        time_unix_ns: fixed64 = 1, "ns", "", "When the poll began; since 1970, UTC.";
        poll: u64 = 2, "", "", "Number of the poll, from 1 at the start of the run.";
        host: text = 3, "", "", "The host's name.";
        boot_id: text = 4, "", "", "The kernel's random id of this boot, as a UUID.";
        tags: tags = 5, "", "", "Names and values from the configuration.";
        is_keyframe: bool = 6, "", "", "Whether unchanged sockets were emitted too.";
        run_id: fixed64 = 7, "", "", "Random number of this run of the collector, as on its records.";
        next_sequence: u64 = 8, "", "",
            "Records that the run had made when these totals were: the `sequence` of the next one. A store has all of them \
             if it has as many different records of this `run_id` with a smaller `sequence`.";
        host_id: text = 9, "", "", "Which host it is, as on the records.";
        kernel_release: text = 14, "", "", "Release of the kernel (`uname -r`).";
        weir_version: text = 15, "", "", "Version of Weir.";
        interval_ms: u64 = 16, "ms", "", "From the beginning of one poll to that of the next, as configured.";
        schema_version: u8 = 17, "", "", "Version of the table, as on the records.";
    }

    stream "Where in a stream of datagrams this is; absent elsewhere." {
        stream_id: fixed64 = 10, "", "", "Random number of the stream.";
        records_sent: u64 = 11, "records", "",
            "Records put into the datagrams of this stream so far, this one's included.";
        datagrams_sent: u64 = 12, "datagrams", "", "Datagrams of this stream before this one.";
        records_too_big: u64 = 13, "records", "",
            "Records so far that alone were larger than a datagram may be, and were not sent.";
    }

    namespaces "Network namespaces." {
        namespaces_visited: u64 = 20, "namespaces", "", "Namespaces that were walked to the end.";
        namespaces_failed: u64 = 21, "namespaces", "",
            "Namespaces that could not be entered or walked; what was read of them before the error counts.";
        namespaces_vanished: u64 = 22, "namespaces", "",
            "Namespaces that ended before they were visited or heard: after they were found, or between two looks.";
        namespaces_new: u64 = 23, "namespaces", "",
            "Namespaces found for the first time since the last totals, by this poll or before it.";
        namespaces_left_out: u64 = 24, "namespaces", "",
            "Namespaces that were found and are neither visited nor heard, because there are more than the configuration allows.";
        namespaces_put_off: u64 = 26, "namespaces", "",
            "Namespaces that the poll did not come to, because it took longer than ten intervals; the next begins with them.";
        connections_unheard: u64 = 25, "connections", "",
            "Connections that closed in new namespaces before these could be heard, by the namespaces' own counters; each end is \
             one. Since the last totals.";
    }

    sockets "What became of every socket that the kernel listed." {
        sockets_visited: u64 = 30, "sockets", "", "Sockets that the kernel listed.";
        sockets_emitted: u64 = 31, "sockets", "", "Records made.";
        sockets_unchanged: u64 = 32, "sockets", "", "Left out because nothing changed since the last record of them.";
        sockets_filtered: u64 = 33, "sockets", "", "Left out by the filter, where the kernel had not left them out.";
        sockets_sampled: u64 = 34, "sockets", "", "Left out by sampling.";
        sockets_dropped_decode_failed: u64 = 35, "sockets", "", "Lost: the kernel's message could not be decoded.";
        sockets_dropped_duplicate: u64 = 36, "sockets", "", "Listed a second time in the same walk, and left out.";
        sockets_dropped_other: u64 = 37, "sockets", "", "Lost for any other reason; the ledger says which.";
    }

    closes "What became of every close that the kernel reported, since the last totals." {
        closes_observed: u64 = 50, "closes", "",
            "Closes that the kernel reported, those that its buffer had no room for included.";
        closes_emitted: u64 = 51, "closes", "", "Closing records made.";
        closes_filtered: u64 = 52, "closes", "", "Left out by the filter.";
        closes_sampled: u64 = 53, "closes", "", "Left out by sampling.";
        closes_dropped_event_buffer: u64 = 54, "closes", "", "Lost: the netlink socket's buffer was full. Exact.";
        closes_dropped_decode_failed: u64 = 55, "closes", "", "Lost: the kernel's message could not be decoded.";
        closes_dropped_duplicate: u64 = 56, "closes", "", "Reported a second time, and left out.";
        closes_dropped_other: u64 = 57, "closes", "", "Lost for any other reason; the ledger says which.";
        closes_unobserved: u64 = 58, "closes", "",
            "Connections that vanished from the polls without a close event. Not part of the sum above.";
        closes_undecided: u64 = 59, "closes", "",
            "Left out because no poll had seen the connection, and its close event does not say what the filter asks for.";
        closes_never_connected: u64 = 60, "closes", "",
            "Left out because the socket was no connection: a listener, or one that was never connected.";
        closes_elsewhere: u64 = 61, "closes", "",
            "Left out because the network namespace is not collected, or no poll had found it yet.";
    }

    table "The table that joins polls and closes." {
        table_entries: u64 = 70, "connections", "", "Connections in the table.";
        table_evicted: u64 = 71, "connections", "",
            "Connections pushed out by newer ones since the last totals; their closing records lack what polls saw.";
    }

    time "What it took." {
        poll_ns: u64 = 80, "ns", "", "The whole poll, by the clock.";
        discovery_ns: u64 = 81, "ns", "", "Looking for namespaces.";
        walk_ns: u64 = 82, "ns", "", "In the kernel: requests and reads.";
        decode_ns: u64 = 83, "ns", "", "Decoding, filtering, joining and handing over.";
        cpu_ns: u64 = 84, "ns", "", "Processor time of the collecting thread for the poll.";
        walks: u64 = 85, "walks", "", "Dumps asked of the kernel.";
        bytes_read: u64 = 86, "bytes", "", "Bytes read from netlink.";
    }
}

fn nothing(_: &mut PollTotals<'_>) {}
