//! What real programs send: `logger`, rsyslogd, syslog-ng, busybox's syslogd and the journal, each to a socket of the test.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use testkit::{Peer, TempDir, find_tool, need_root, need_tool, receive, receiver, run, wait_for};
use wire::syslog::{Arrival, Format, Syslog, parse};

/// This host's name as programs write it.
fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

fn now_unix_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A message of `local3.warning` by the program `tea`, from just now.
fn check(payload: &[u8], host: Option<&str>, proc_id: Option<&str>, text: &str) {
    let shown = String::from_utf8_lossy(payload);
    let now = now_unix_ns();
    let said = parse(payload, Arrival::utc(now));
    assert_eq!((said.facility, said.severity, said.fault), (Some(19), Some(4), None), "{shown}");
    let read = Syslog { time_unix_ns: None, structured_data: None, form: None, ..said };
    let expected = Syslog {
        format: said.format,
        facility: Some(19),
        severity: Some(4),
        hostname: host,
        app_name: Some("tea"),
        proc_id,
        message: Some(text.as_bytes()),
        ..Syslog::default()
    };
    assert_eq!(read, expected, "{shown}");
    // These tests run programs with TZ=UTC. A message may say no time at all.
    if let Some(time) = said.time_unix_ns {
        assert!(now.abs_diff(time) < 60_000_000_000, "{shown}");
    }
}

/// A socket, and its port.
fn socket() -> (UdpSocket, String) {
    let (socket, address) = receiver();
    let port = address.rsplit(':').next().unwrap().to_owned();
    (socket, port)
}

fn logger(args: &[&str], text: &str) {
    let mut logger = Command::new("logger");
    logger.env("TZ", "UTC").args(["-t", "tea", "-p", "local3.warning"]).args(args);
    run(logger.args(["--", text]));
}

#[test]
fn logger_in_each_of_its_modes() {
    if !need_tool("logger") {
        return;
    }
    let (socket, port) = socket();
    let host = host();
    let modes: [(&[&str], Option<&str>, Option<&str>); 7] = [
        (&[], Some(&host), None),
        (&["--rfc3164"], Some(&host), None),
        (&["--rfc3164", "--id=4711"], Some(&host), Some("4711")),
        (&["--rfc5424"], Some(&host), None),
        (&["--rfc5424", "--id=4711"], Some(&host), Some("4711")),
        (&["--rfc5424=notime,notq"], Some(&host), None),
        (&["--rfc5424=nohost"], None, None),
    ];
    for (mode, host, proc_id) in modes {
        let args = [&["-n", "127.0.0.1", "-P", &port, "-d"][..], mode].concat();
        logger(&args, "one: two");
        check(&receive(&socket), host, proc_id, "one: two");
    }

    // To the socket of this host it writes no host.
    let dir = TempDir::new();
    let local = UnixDatagram::bind(dir.file("log")).unwrap();
    local.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for (mode, proc_id) in [(&[][..], None), (&["--id=4711"][..], Some("4711"))] {
        logger(&[&["-u", &dir.text("log")][..], mode].concat(), "three");
        let mut room = [0; 1_000];
        let len = local.recv(&mut room).unwrap();
        check(&room[..len], None, proc_id, "three");
    }
}

/// Starts a daemon of the test's own.
fn start(command: &mut Command) -> Peer {
    Peer::start(command.env("TZ", "UTC").stdin(Stdio::null()).stdout(Stdio::null()))
}

/// Sends one message to the daemon's own socket, which it forwards.
fn send(socket: &std::path::Path, text: &str) {
    wait_for(|| format!("{} is there", socket.display()), || socket.exists().then_some(()));
    logger(&["--id=4711", "-u", socket.to_str().unwrap()], text);
}

#[test]
fn rsyslogd_by_each_of_its_templates() {
    if !need_tool("rsyslogd") || !need_tool("logger") {
        return;
    }
    let (dir, (socket, port)) = (TempDir::new(), socket());
    let action = |template: &str| {
        format!(
            "action(type=\"omfwd\" target=\"127.0.0.1\" port=\"{port}\" protocol=\"udp\" template=\"{template}\")\n"
        )
    };
    let templates = [
        "RSYSLOG_TraditionalForwardFormat",
        "RSYSLOG_ForwardFormat",
        "RSYSLOG_SyslogProtocol23Format",
    ];
    let config = format!(
        "global(workDirectory=\"{}\" localHostname=\"relay-1.example.net\" preserveFQDN=\"on\")\nmodule(load=\"imuxsock\" SysSock.Use=\"off\")\n\
         input(type=\"imuxsock\" Socket=\"{}\" UseSysTimeStamp=\"off\")\n{}",
        dir.path().display(),
        dir.text("log"),
        templates.map(action).concat()
    );
    fs::write(dir.file("conf"), config).unwrap();
    let mut command = Command::new(find_tool("rsyslogd").unwrap());
    command.args(["-n", "-f"]).arg(dir.file("conf")).arg("-i").arg(dir.file("pid"));
    let daemon = start(&mut command);
    send(&dir.file("log"), "from rsyslogd");
    let messages: Vec<Vec<u8>> = (0..templates.len()).map(|_| receive(&socket)).collect();
    for message in &messages {
        // rsyslogd keeps the blank behind the colon as a part of the text, and RFC 5424 has no colon.
        let text = if message.starts_with(b"<156>1 ") { " from rsyslogd" } else { "from rsyslogd" };
        check(message, Some("relay-1.example.net"), Some("4711"), text);
    }
    let newer = |message: &&Vec<u8>| parse(message, Arrival::utc(0)).format == Format::Rfc5424;
    assert_eq!(messages.iter().filter(newer).count(), 1);
    drop(daemon);
}

#[test]
fn syslog_ng_in_both_of_its_formats() {
    if !need_tool("syslog-ng") || !need_tool("logger") {
        return;
    }
    let (dir, (socket, port)) = (TempDir::new(), socket());
    let config = format!(
        "@version: 3.38\noptions {{ use-dns(no); chain-hostnames(no); keep-hostname(yes); }};\nsource s {{ unix-dgram(\"{}\"); }};\n\
         destination a {{ network(\"127.0.0.1\" port({port}) transport(udp) persist-name(\"a\")); }};\n\
         destination b {{ syslog(\"127.0.0.1\" port({port}) transport(udp) persist-name(\"b\")); }};\n\
         log {{ source(s); destination(a); destination(b); }};\n",
        dir.text("log")
    );
    fs::write(dir.file("conf"), config).unwrap();
    let mut command = Command::new(find_tool("syslog-ng").unwrap());
    command.args(["-F", "--no-caps", "-f"]).arg(dir.file("conf"));
    for (flag, name) in [("-p", "pid"), ("-c", "ctl"), ("-R", "persist")] {
        command.arg(flag).arg(dir.file(name));
    }
    let daemon = start(&mut command);
    send(&dir.file("log"), "from syslog-ng");
    for _ in 0..2 {
        check(&receive(&socket), Some(&host()), Some("4711"), "from syslog-ng");
    }
    drop(daemon);
}

/// busybox's syslogd has no other socket than `/dev/log`, so it runs where that is its own.
#[test]
fn busybox_syslogd() {
    if !need_tool("busybox") || !need_root("a /dev of its own") {
        return;
    }
    let (socket, port) = socket();
    let script = format!(
        "mount -t tmpfs none /dev && busybox syslogd -n -O /dev/messages -R 127.0.0.1:{port} & daemon=$!\n\
         while [ ! -S /dev/log ] && kill -0 $daemon; do :; done\n\
         busybox logger -t tea -p local3.warning from busybox; wait $daemon"
    );
    let mut command = Command::new("unshare");
    let daemon =
        start(command.args(["-m", "--pid", "--fork", "--kill-child", "sh", "-c", &script]));
    check(&receive(&socket), None, None, "from busybox");
    drop(daemon);
}

/// The journal forwards to `/run/systemd/journal/syslog` only, so it runs where `/run` is its own.
#[test]
fn journald_forwards_what_comes_by_each_of_its_ways() {
    if !need_tool("systemd-journald") || !need_tool("logger") || !need_root("a /run of its own") {
        return;
    }
    let dir = TempDir::new();
    let socket = UnixDatagram::bind(dir.file("syslog")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let script = format!(
        "mount -t tmpfs none /run && cd /run && mkdir -p systemd/journal systemd/journald.conf.d && ln -s {} systemd/journal/syslog\n\
         echo 0123456789abcdef0123456789abcdef >id; touch /etc/machine-id; mount --bind id /etc/machine-id\n\
         printf '[Journal]\nForwardToSyslog=yes\nStorage=none\nReadKMsg=no\n' >systemd/journald.conf.d/forward.conf\n\
         {} & daemon=$!\n\
         while [ ! -S systemd/journal/stdout ] && kill -0 $daemon; do :; done\n\
         logger -u systemd/journal/dev-log -t tea -p local3.warning --id=4711 by logger\n\
         logger -u systemd/journal/dev-log -t tea -p local3.warning by logger\n\
         printf 'PRIORITY=4\nSYSLOG_FACILITY=19\nSYSLOG_IDENTIFIER=tea\nSYSLOG_PID=4711\nMESSAGE=natively\n' >native\n\
         python3 -c 'import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(open(\"native\", \"rb\").read(), \"systemd/journal/socket\")'\n\
         wait $daemon",
        dir.text("syslog"),
        find_tool("systemd-journald").unwrap().display(),
    );
    let mut command = Command::new("unshare");
    let daemon =
        start(command.args(["-m", "--pid", "--fork", "--kill-child", "sh", "-c", &script]));
    let receive = || {
        let mut room = [0; 1_000];
        let len = socket.recv(&mut room).unwrap();
        room[..len].to_vec()
    };
    check(&receive(), None, Some("4711"), "by logger");
    check(&receive(), None, None, "by logger");
    // It names the process that wrote to it, and not the one that the message names.
    let native = receive();
    let proc_id = parse(&native, Arrival::utc(0)).proc_id.unwrap_or_default();
    assert_ne!(proc_id, "4711");
    check(&native, None, Some(proc_id), "natively");
    drop(daemon);
}
