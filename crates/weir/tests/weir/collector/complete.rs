//! What a store gets is enough to prove that nothing is missing: in files and in datagrams, over a reload and to the last record of a
//! daemon that stops.

use super::{disk, made, records, wait_for_polls, wait_for_record, wait_for_reloads, write};
use crate::support::Weir;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::{TempDir, signal};

/// Of each run, all records are there that its last totals say were made, once, and none came behind those totals.
#[track_caller]
pub(super) fn assert_complete(lines: &[Value]) {
    let mut sequences: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let mut made: BTreeMap<u64, u64> = BTreeMap::new();
    for line in lines {
        let is_totals = line["record_kind"] == "totals";
        let row = if is_totals { &line["totals"] } else { line };
        let number = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("no {name}: {line}"));
        if is_totals {
            let most = made.entry(number("run_id")).or_default();
            *most = number("next_sequence").max(*most);
        } else {
            let is_new = sequences.entry(number("run_id")).or_default().insert(number("sequence"));
            assert!(is_new, "twice: {line}");
        }
    }
    for (run, made) in made {
        let found = sequences.remove(&run).unwrap_or_default();
        assert!(found.iter().copied().eq(0..made), "run {run}: {made} were made: {found:?}");
    }
    assert!(sequences.is_empty(), "runs without totals: {:?}", sequences.keys());
}

/// What came in datagrams, as lines of a file would have it.
fn lines_of(datagram: &[u8], lines: &mut Vec<Value>) {
    let view = record::decode_datagram(datagram).unwrap();
    for record in view.records() {
        let record = record.unwrap();
        lines.push(json!({"run_id": record.run_id, "sequence": record.sequence}));
    }
    if let Some(totals) = view.totals {
        let row = json!({"run_id": totals.run_id, "next_sequence": totals.next_sequence});
        lines.push(json!({"record_kind": "totals", "totals": row}));
    }
}

/// Both ends of a connection to a listener.
pub(super) fn connect(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Makes a connection and ends it so that it leaves no port in TIME-WAIT: what nobody has read makes the kernel reset it.
fn abort(listener: &TcpListener) {
    let (near, mut far) = connect(listener);
    far.write_all(b"x").unwrap();
    near.peek(&mut [0]).unwrap();
    drop(near);
}

#[test]
fn files_and_datagrams_prove_themselves_complete_over_a_reload_and_a_stop() {
    let dir = TempDir::new();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let udp = format!("name = \"wire\"\nto = \"udp://{}\"", receiver.local_addr().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let _stays = connect(&listener);
    // Few enough that no datagram is lost on the way.
    let keys = |every: u32| {
        format!(
            "namespaces = \"own\"\nfilter = \"dport = :{port} or sport = :{port}\"\nkeyframe_every = {every}\nprocesses = true"
        )
    };
    let config = write(&dir, &keys(2), &[&disk(&dir), &udp]);
    let weir = Weir::run(&config);
    let path = dir.file("out.jsonl");
    let is_over = AtomicBool::new(false);
    let (ended, datagrams) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut lines, mut buffer) = (Vec::new(), vec![0; 65_536]);
            loop {
                // Whether it was over before the wait: what came until then is read.
                let was_over = is_over.load(Ordering::Acquire);
                match receiver.recv(&mut buffer) {
                    Ok(len) => lines_of(&buffer[..len], &mut lines),
                    Err(_) if was_over => return lines,
                    Err(_) => {}
                }
            }
        });
        wait_for_polls(&weir, 3);
        let first = wait_for_record(&path, "a record", |record| record["run_id"].is_u64());
        abort(&listener);
        write(&dir, &keys(3), &[&disk(&dir), &udp]);
        signal(weir.process(), "HUP");
        wait_for_reloads(&weir, 1);
        let record = wait_for_record(&path, "the process in the other run", |record| {
            let is_ours = record["process_id"] == std::process::id();
            record["dst_port"] == port && is_ours && record["run_id"] != first["run_id"]
        });
        assert!(record["process_name"].is_string(), "{record}");
        // Closes that come as the daemon stops have their totals too.
        (0..20).for_each(|_| abort(&listener));
        let ended = weir.stop();
        is_over.store(true, Ordering::Release);
        (ended, reader.join().unwrap())
    });
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let lines = records(&path);
    assert_complete(&lines);
    assert_complete(&datagrams);
    let of_sockets =
        |lines: &[Value]| lines.iter().filter(|line| line["record_kind"] != "totals").count();
    assert_eq!(of_sockets(&lines) as u64, made(&ended.ledger));
    assert_eq!(of_sockets(&datagrams), of_sockets(&lines), "{}", ended.said);
    let runs: BTreeSet<_> = lines.iter().filter_map(|line| line["run_id"].as_u64()).collect();
    assert_eq!(runs.len(), 2, "the reload began another");
}
