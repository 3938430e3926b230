//! A datagram's structures as JSON, for people who debug agents.

use super::input::Datagram;
use serde_json::{Map, Value as Json, json};
use std::fmt::Write as _;
use wire::sflow::{
    self, CounterRecord, DataSource, DropReason, FlowRecord, Interface, Malformed, Metric,
    MetricValue, Packet, RawRecord, Value,
};

/// The JSON line of a datagram.
pub(super) fn line(datagram: &Datagram<'_>) -> String {
    let mut line = Map::new();
    line.insert("time_unix_ns".into(), datagram.unix_ns.to_string().into());
    line.insert("from".into(), datagram.source.to_string().into());
    match sflow::Datagram::parse(datagram.bytes) {
        Ok(read) => {
            line.insert("agent".into(), read.agent.to_string().into());
            line.insert("sub_agent".into(), read.sub_agent.into());
            line.insert("sequence".into(), read.sequence.into());
            line.insert("uptime_ms".into(), read.uptime_ms.into());
            line.insert("samples".into(), each(read.samples(), sample));
        }
        Err(broken) => {
            line.insert("error".into(), broken.to_string().into());
        }
    }
    format!("{}\n", Json::Object(line))
}

/// All of them, with broken ones in place as errors.
fn each<T>(all: impl Iterator<Item = Result<T, Malformed>>, print: impl Fn(&T) -> Json) -> Json {
    let print = |one: Result<T, Malformed>| match one {
        Ok(one) => print(&one),
        Err(broken) => json!({ "error": broken.to_string() }),
    };
    all.map(print).collect()
}

fn sample(sample: &sflow::Sample<'_>) -> Json {
    match sample {
        sflow::Sample::Flow(flow) => json!({
            "sample": "flow",
            "sequence": flow.sequence,
            "source": source(flow.source),
            "sampling_rate": flow.sampling_rate,
            "pool": flow.sample_pool,
            "drops": flow.drops,
            "input": interface(flow.input),
            "output": interface(flow.output),
            "records": each(flow.records(), flow_record),
        }),
        sflow::Sample::Counters(counters) => json!({
            "sample": "counters",
            "sequence": counters.sequence,
            "source": source(counters.source),
            "records": each(counters.records(), counter_record),
        }),
        sflow::Sample::Dropped(dropped) => json!({
            "sample": "dropped_packet",
            "sequence": dropped.sequence,
            "source": source(dropped.source),
            "drops": dropped.drops,
            "input": dropped.input_if_index,
            "output": dropped.output_if_index,
            "reason": reason(dropped.reason),
            "records": each(dropped.records(), flow_record),
        }),
        sflow::Sample::Metrics(metrics) => json!({
            "sample": "rtmetric",
            "source": metrics.data_source.to_string(),
            "values": named(metrics.metrics),
        }),
        sflow::Sample::RtFlow(flow) => json!({
            "sample": "rtflow",
            "source": flow.data_source.to_string(),
            "sampling_rate": flow.sampling_rate,
            "pool": flow.sample_pool,
            "values": named(flow.fields),
        }),
        sflow::Sample::Unknown(raw) => self::raw("sample", raw),
    }
}

fn flow_record(record: &FlowRecord<'_>) -> Json {
    if let FlowRecord::Unknown(raw) = record {
        return self::raw("record", raw);
    }
    let mut fields = fields(record.name(), |visit| record.each(visit));
    if let FlowRecord::SampledHeader(header) = record {
        fields.insert("packet".into(), packet(&header.packet()));
    }
    fields.into()
}

fn counter_record(record: &CounterRecord<'_>) -> Json {
    match record {
        CounterRecord::Unknown(raw) => self::raw("record", raw),
        record => fields(record.name(), |visit| record.each(visit)).into(),
    }
}

/// A record's name and fields. `each` visits the fields.
fn fields<'a>(
    name: Option<&'static str>,
    each: impl FnOnce(&mut dyn FnMut(&'static str, Value<'a>)),
) -> Map<String, Json> {
    let mut fields = Map::from_iter([("record".into(), name.into())]);
    each(&mut |name, value| _ = fields.insert(name.into(), self::value(&value)));
    fields
}

fn named<'a>(values: impl Iterator<Item = Result<Metric<'a>, sflow::Fault>>) -> Json {
    let mut fields = Map::new();
    for value in values {
        match value {
            Ok(one) => fields.insert(one.name.to_string(), metric(&one.value)),
            Err(fault) => fields.insert("error".into(), fault.to_string().into()),
        };
    }
    fields.into()
}

fn raw(what: &str, raw: &RawRecord<'_>) -> Json {
    json!({ what: raw.format.to_string(), "bytes": hex(raw.body) })
}

fn source(source: DataSource) -> Json {
    format!("{}:{}", source.class, source.index).into()
}

fn interface(interface: Interface) -> Json {
    match interface {
        Interface::Unknown => Json::Null,
        Interface::Index(index) => index.into(),
        Interface::Internal => "internal".into(),
        Interface::Discarded(why) => json!({ "discarded": reason(why) }),
        Interface::Multiple(count) => json!({ "multiple": count }),
        Interface::Other { format, value } => json!({ "format": format, "value": value }),
    }
}

fn reason(reason: DropReason) -> Json {
    reason.name().map_or_else(|| reason.0.into(), Json::from)
}

fn value(value: &Value<'_>) -> Json {
    match value {
        Value::U32(number) => (*number).into(),
        Value::U64(number) => (*number).into(),
        Value::I32(number) => (*number).into(),
        Value::F32(number) => (*number).into(),
        Value::Counter32(counter) => counter.known().into(),
        Value::Counter64(counter) => counter.known().into(),
        Value::Mac(mac) => mac.to_string().into(),
        Value::Address(address) => address.ip().map(|ip| ip.to_string()).into(),
        Value::Uuid(uuid) => hex(uuid).into(),
        Value::Text(text) => text.to_string().into(),
        Value::Bytes(bytes) => hex(bytes).into(),
        Value::Numbers(list) => list.iter().map(Json::from).collect(),
        Value::Signed(list) => list.iter().map(Json::from).collect(),
        Value::AsPath(path) => path
            .segments()
            .map(|segment| json!({ "type": segment.kind(), "systems": segment.systems().iter().collect::<Vec<_>>() }))
            .collect(),
        Value::Lanes(lanes) => lanes.iter().map(|lane| format!("{lane:?}")).collect(),
        Value::Adapters(adapters) => adapters
            .iter()
            .map(|one| json!({ "if_index": one.if_index, "macs": one.macs().map(|mac| mac.to_string()).collect::<Vec<_>>() }))
            .collect(),
        Value::Absent => Json::Null,
    }
}

fn metric(value: &MetricValue<'_>) -> Json {
    match value {
        MetricValue::Text(text) => text.to_string().into(),
        MetricValue::Counter32(counter) => counter.known().into(),
        MetricValue::Counter64(counter) => counter.known().into(),
        MetricValue::U32(number) => (*number).into(),
        MetricValue::U64(number) => (*number).into(),
        MetricValue::F32(number) => (*number).into(),
        MetricValue::F64(number) => (*number).into(),
        MetricValue::Mac(mac) => mac.to_string().into(),
        MetricValue::Ipv4(address) => address.to_string().into(),
        MetricValue::Ipv6(address) => address.to_string().into(),
    }
}

/// The decoded headers of a frame; unknown parts are left out.
fn packet(packet: &Packet) -> Json {
    let ip = |ip: &sflow::Ip| {
        json!({
            "src": ip.src,
            "dst": ip.dst,
            "protocol": ip.protocol,
            "ttl": ip.ttl,
            "tos": ip.tos,
            "length_bytes": ip.length_bytes,
            "src_port": ip.ports.map(|ports| ports.src),
            "dst_port": ip.ports.map(|ports| ports.dst),
            "tcp_flags": ip.tcp_flags,
            "icmp_type": ip.icmp.map(|icmp| icmp.kind),
            "icmp_code": ip.icmp.map(|icmp| icmp.code),
            "fragment_offset": ip.fragment.map(|fragment| fragment.offset_bytes),
        })
    };
    let mut whole = json!({
        "src_mac": packet.macs.map(|macs| macs.src.to_string()),
        "dst_mac": packet.macs.map(|macs| macs.dst.to_string()),
        "vlan": packet.vlan.map(|vlan| vlan.id()),
        "inner_vlan": packet.inner_vlan.map(|vlan| vlan.id()),
        "mpls": packet.mpls.labels().collect::<Vec<_>>(),
        "ethertype": packet.ethertype,
        "ip": packet.ip.as_ref().map(ip),
        "tunnel": packet.tunnel.map(|tunnel| format!("{tunnel:?}")),
        "inner": packet.inner.as_ref().map(ip),
    });
    without_nothing(&mut whole);
    whole
}

/// Removes null values.
fn without_nothing(json: &mut Json) {
    if let Json::Object(fields) = json {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(without_nothing);
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
