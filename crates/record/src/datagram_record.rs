//! The table of received datagrams: one row each.
//!
//! Fields that other tables also have keep their numbers, and the others use numbers that `SocketRecord` does not have, so
//! a reader of a mixed stream always finds `record_kind` under its number.

use crate::schema::schema;
use crate::{
    RecordKind, SCHEMA_VERSION, SyslogFacility, SyslogFault, SyslogFormat, SyslogSeverity,
};
use std::net::IpAddr;
use wire::syslog::{Fault, Format, Syslog};

schema! {
    /// One datagram that a listener received. A field that is `None` is not known, or was not asked for.
    DatagramRecord<'a> DatagramIndex finish restore_ipv4

    identity "Which row this is, and of which host." {
        record_kind: RecordKind = 1, "", "", "What the row is about: `datagram`.";
        time_unix_ns: fixed64 = 2, "ns", "", "When the kernel received it, or else when it was read; since 1970, UTC.";
        sequence: u64 = 17, "", "",
            "Number of this row among those of its run, from 0; a gap is a row that is missing. (`run_id`, `sequence`) \
             names a row: a store that has it twice has a copy.";
        host: text = 18, "", "", "The name of the host that received it, as on socket records.";
        tags: tags = 20, "", "", "Names and values from the configuration.";
        run_id: fixed64 = 21, "", "", "Random number of this run, above 0 and below 2^63.";
        host_id: text = 22, "", "", "Which host received it, as on socket records.";
        schema_version: u8 = 24, "", "", "Version of the tables, as on socket records.";
    }

    datagram "What was received, and from whom." {
        listener: text = 500, "", "", "The listener's name in the configuration.";
        source_address: address = 501, "", "",
            "The sender's address, as the kernel received it: nothing proves it.";
        source_port: u16 = 502, "", "", "The sender's port.";
        payload: data = 503, "", "", "What the datagram held, whole and unchanged.";
        payload_truncated_bytes: u32 = 504, "bytes", "",
            "Bytes at the end of the payload that were lost, because the datagram was larger than the buffer.";
    }

    syslog "What the payload says as syslog, where the listener is told to read it as that. Nothing of it is verified, and \
            `payload` has it all." {
        syslog_format: SyslogFormat = 520, "", "",
            "Which form of syslog it has; `unparsed` if none, and then the fields below are absent, but for facility and severity if it \
             begins with a valid `<number>`.";
        facility: SyslogFacility = 521, "", "", "What sort of program sent it.";
        severity: SyslogSeverity = 522, "", "", "How bad it is: 0 is worst.";
        syslog_time_unix_ns: fixed64 = 523, "ns", "",
            "The sender's own time; since 1970, UTC. A time without a year (RFC 3164) has the one that is nearest to \
             `time_unix_ns`; one without a zone is read in `time_zone` of the listener or the sink.";
        hostname: text = 524, "", "", "The host that the message names, which need not be `source_address`.";
        app_name: text = 525, "", "", "The program; the tag of RFC 3164 without the process id.";
        proc_id: text = 526, "", "", "The process id, or what the sender puts in its place.";
        msg_id: text = 527, "", "", "The type of message; of Cisco devices, what stands between `%` and the colon (Huawei and H3C: behind `%%` and the version).";
        structured_data: data = 528, "", "", "Names and values as they were sent, with brackets and escapes.";
        message: data = 529, "", "",
            "The text, without the parts above, byte order mark and line end.";
        syslog_fault: SyslogFault = 530, "", "",
            "The first part that is not as RFC 5424 says. The parts before it are here, and `message` has the rest; a time without a \
             zone alone is read, and so is what follows it.";
    }
}

impl<'a> DatagramRecord<'a> {
    /// A row with only kind and version set.
    pub fn new() -> DatagramRecord<'a> {
        DatagramRecord {
            record_kind: Some(RecordKind::DATAGRAM),
            schema_version: Some(SCHEMA_VERSION),
            ..DatagramRecord::default()
        }
    }

    /// Fills in the fields parsed from the payload as syslog.
    pub fn fill_syslog(&mut self, syslog: &Syslog<'a>) {
        self.syslog_format = Some(match syslog.format {
            Format::Unparsed => SyslogFormat::UNPARSED,
            Format::Rfc5424 => SyslogFormat::RFC5424,
            Format::Rfc3164 => SyslogFormat::RFC3164,
        });
        self.syslog_fault = syslog.fault.map(|fault| match fault {
            Fault::Time => SyslogFault::TIME,
            Fault::TimeZone => SyslogFault::TIME_ZONE,
            Fault::Hostname => SyslogFault::HOSTNAME,
            Fault::AppName => SyslogFault::APP_NAME,
            Fault::ProcId => SyslogFault::PROC_ID,
            Fault::MsgId => SyslogFault::MSG_ID,
            Fault::StructuredData => SyslogFault::STRUCTURED_DATA,
            Fault::Message => SyslogFault::MESSAGE,
        });
        self.facility = syslog.facility.map(SyslogFacility);
        self.severity = syslog.severity.map(SyslogSeverity);
        self.syslog_time_unix_ns = syslog.time_unix_ns;
        self.hostname = syslog.hostname;
        self.app_name = syslog.app_name;
        self.proc_id = syslog.proc_id;
        self.msg_id = syslog.msg_id;
        self.structured_data = syslog.structured_data;
        self.message = syslog.message;
    }
}

/// On the wire all addresses have 16 bytes. A dual-stack listener reports IPv4 addresses as `::ffff:a.b.c.d` anyway.
fn restore_ipv4(datagram: &mut DatagramRecord<'_>) {
    datagram.source_address = datagram.source_address.map(|address: IpAddr| address.to_canonical());
}
