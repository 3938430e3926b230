//! The forms of headers, most certain first: who sends each, the document that has it, and examples, which are its tests.

/// Which form of header a message was read as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    Rfc5424,
    Meraki,
    Epoch,
    Fields,
    Sophos,
    Iso,
    NetScaler,
    Rfc3164,
    Cisco,
    NetScreen,
    Aix,
    NetApp,
    UniFi,
    ProCurve,
    Relayed,
    /// No header that is known.
    #[default]
    Text,
}

/// A form as it is documented.
#[derive(Clone, Copy, Debug)]
pub struct FormDocument {
    pub form: Form,
    /// As the program prints it.
    pub name: &'static str,
    /// What it looks like behind the priority, with brackets around what may be missing.
    pub shape: &'static str,
    /// Who sends it, and which document has it.
    pub source: &'static str,
    pub examples: &'static [Example],
}

/// A line and what is read from it. A part that is not read is `""`.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    pub line: &'static str,
    /// RFC 3339, where the arrival is in November 2026 and the zone UTC.
    pub time: &'static str,
    pub hostname: &'static str,
    pub app_name: &'static str,
    pub msg_id: &'static str,
    pub message: &'static str,
}

const fn example(
    line: &'static str,
    [time, hostname, app_name, msg_id, message]: [&'static str; 5],
) -> Example {
    Example { line, time, hostname, app_name, msg_id, message }
}

const TIME: &str = "2026-10-11T22:14:15Z";

/// Every form, in the order in which they are tried.
pub const FORMS: [FormDocument; 16] = [
    FormDocument {
        form: Form::Rfc5424,
        name: "rfc5424",
        shape: "`1 TIME HOST PROGRAM PROCESS TYPE DATA[ TEXT]`",
        source: "RFC 5424, section 6. The parts before one that is wrong are kept (`syslog_fault`).",
        examples: &[
            example(
                "<34>1 2026-10-11T22:14:15Z gw1 su - ID47 - x",
                [TIME, "gw1", "su", "ID47", "x"],
            ),
            example(
                "<134>1 2026-10-11T22:14:15Z fw1 CheckPoint 4303 - [action:\"Accept\"; ]",
                [TIME, "fw1", "CheckPoint", "", "[action:\"Accept\"; ]"],
            ),
        ],
    },
    FormDocument {
        form: Form::Meraki,
        name: "meraki",
        shape: "`1 SECONDS[.FRACTION] HOST TEXT`",
        source: "Cisco Meraki, \"Syslog Event Types and Log Samples\"",
        examples: &[example(
            "<134>1 1791756855.426960608 mx84 urls src=192.0.2.1:5334",
            ["2026-10-11T22:14:15.426960608Z", "mx84", "", "", "urls src=192.0.2.1:5334"],
        )],
    },
    FormDocument {
        form: Form::Epoch,
        name: "epoch",
        shape: "`SECONDS[.FRACTION] [HOST ][PROGRAM…: ]TEXT`",
        source: "rsyslog's `date-unixtimestamp`, syslog-ng's `$UNIXTIME`; only within two years of the arrival",
        examples: &[example("<13>1791756855 gw1 app[3]: x", [TIME, "gw1", "app", "", "x"])],
    },
    FormDocument {
        form: Form::Fields,
        name: "fields",
        shape: "`[device=…][ ](date=DATE time=TIME|timestamp=\"TIME\") [devname=\"HOST\" ]…`",
        source: "Fortinet, \"FortiOS Log Message Reference\"; Sophos Firewall, \"Syslog guide\". `tz` or `timezone` is the zone; all of it is the text.",
        examples: &[example(
            "<189>date=2026-10-11 time=22:14:15 devname=\"fg1\" tz=\"+0200\" level=\"notice\"",
            [
                "2026-10-11T20:14:15Z",
                "fg1",
                "",
                "",
                "date=2026-10-11 time=22:14:15 devname=\"fg1\" tz=\"+0200\" level=\"notice\"",
            ],
        )],
    },
    FormDocument {
        form: Form::Sophos,
        name: "sophos",
        shape: "`YEAR:MONTH:DAY-TIME [HOST ]PROGRAM…: TEXT`",
        source: "Sophos UTM, \"Log file format\"",
        examples: &[example(
            "<30>2026:10:11-22:14:15 utm1 httpproxy[4711]: id=\"0001\"",
            [TIME, "utm1", "httpproxy", "", "id=\"0001\""],
        )],
    },
    FormDocument {
        form: Form::Iso,
        name: "iso",
        shape: "`YEAR-MONTH-DAY(T| )TIME[ZONE][ ZONE] [HOST ][PROGRAM…: ]TEXT`",
        source: "rsyslog's RSYSLOG_ForwardFormat, syslog-ng's `ts-format(iso)`, VMware ESXi, ASA's `logging timestamp rfc5424`",
        examples: &[
            example("<34>2026-10-12T00:14:15+02:00 gw1 app[1]: x", [TIME, "gw1", "app", "", "x"]),
            example(
                "<166>2026-10-11T22:14:15Z fw1 : %ASA-6-305011: x",
                [TIME, "fw1", "", "ASA-6-305011", "x"],
            ),
        ],
    },
    FormDocument {
        form: Form::NetScaler,
        name: "netscaler",
        shape: "`MONTH/DAY/YEAR:TIME[ ZONE] [HOST ]TEXT`",
        source: "Citrix NetScaler, \"Configuring audit log action\". The first number is the day where that makes it today.",
        examples: &[example(
            "<134> 10/11/2026:22:14:15 GMT ns1 0-PPE-0 : default TCP x",
            [TIME, "ns1", "", "", "0-PPE-0 : default TCP x"],
        )],
    },
    FormDocument {
        form: Form::Rfc3164,
        name: "rfc3164",
        shape: "`[YEAR ]MONTH DAY [YEAR ]TIME[ YEAR][ ZONE] [HOST ][PROGRAM[PROCESS]: ]TEXT`",
        source: "RFC 3164, section 4; ASA and FTD (`HOST[ ]: %…`), Junos, F5 (`HOST LEVEL PROGRAM[PROCESS]: `)",
        examples: &[
            example("<34>Oct 11 22:14:15 gw1 su[3]: x", [TIME, "gw1", "su", "", "x"]),
            example("<30>Oct 11 22:14:15 UTC gw1 app[3]: x", [TIME, "gw1", "app", "", "x"]),
            example("<30>Oct 11 22:14:15 app: x", [TIME, "", "app", "", "x"]),
            example(
                "<166>Oct 11 2026 22:14:15 fw1: %ASA-6-305011: x",
                [TIME, "fw1", "", "ASA-6-305011", "x"],
            ),
            example("<14>Oct 11 22:14:15 gw1 gw1 app[3117]: x", [TIME, "gw1", "app", "", "x"]),
        ],
    },
    FormDocument {
        form: Form::Cisco,
        name: "cisco",
        shape: "`[COUNTER: ][HOST[:] ][COUNTER: ][*TASK: ][LOCATION:][*|.](TIME[ ZONE]|UPTIME): [PROGRAM…: ]%MNEMONIC: TEXT`",
        source: "Cisco IOS, IOS XE, IOS XR, NX-OS, AireOS: \"System Message Logging\"; any part before `%` may be missing",
        examples: &[
            example(
                "<190>51377: 51371: Oct 11 22:14:15: %SEC-6-IPACCESSLOGP: x",
                [TIME, "", "", "SEC-6-IPACCESSLOGP", "x"],
            ),
            example(
                "<189>3401: sw01: 3397: Oct 11 2026 22:14:15 UTC: %SYS-5-CONFIG_I: x",
                [TIME, "sw01", "", "SYS-5-CONFIG_I", "x"],
            ),
            example(
                "<189>7662: *Oct 11 22:14:15 NewYork: %SYS-5-RESTART: x",
                [TIME, "", "", "SYS-5-RESTART", "x"],
            ),
            example("<189>46: 3w2d: %SYS-5-CONFIG_I: x", ["", "", "", "SYS-5-CONFIG_I", "x"]),
            example(
                "<189>45: RP/0/RSP0/CPU0:Oct 11 22:14:15 : config[65]: %MGBL-SYS-5-CONFIG_I : x",
                [TIME, "", "config", "MGBL-SYS-5-CONFIG_I", "x"],
            ),
        ],
    },
    FormDocument {
        form: Form::NetScreen,
        name: "netscreen",
        shape: "`HOST: NetScreen device_id=… TEXT`",
        source: "Juniper ScreenOS, \"Message Log Reference Guide\"",
        examples: &[example(
            "<133>ns5: NetScreen device_id=ns5 [Root]system-notification-00257(traffic): x",
            [
                "",
                "ns5",
                "",
                "",
                "NetScreen device_id=ns5 [Root]system-notification-00257(traffic): x",
            ],
        )],
    },
    FormDocument {
        form: Form::Aix,
        name: "aix",
        shape: "`TIME Message forwarded from HOST: [PROGRAM…: ]TEXT`",
        source: "IBM AIX, syslogd",
        examples: &[example(
            "<38>Oct 11 22:14:15 Message forwarded from aix1: sshd[5]: x",
            [TIME, "aix1", "sshd", "", "x"],
        )],
    },
    FormDocument {
        form: Form::NetApp,
        name: "netapp",
        shape: "`TIME [HOST:EVENT:SEVERITY]: TEXT`, with a process behind the host in older versions",
        source: "NetApp ONTAP, `event notification destination` with `legacy-netapp`",
        examples: &[example(
            "<13>Oct 11 22:14:15 [na1:callhome.reboot:notice]: x",
            [TIME, "na1", "", "callhome.reboot", "x"],
        )],
    },
    FormDocument {
        form: Form::UniFi,
        name: "unifi",
        shape: "`TIME (MODEL,MAC,VERSION|HOST MAC,MODEL:) PROGRAM…: TEXT`",
        source: "Ubiquiti UniFi access points and switches; a model is not a host",
        examples: &[
            example(
                "<30>Oct 11 22:14:15 U7PG2,788a20aabbcc,v4.3.20 hostapd: x",
                [TIME, "", "hostapd", "", "x"],
            ),
            example(
                "<30>Oct 11 22:14:15 ap1 788a20aabbcc,UAP-AC-Pro-6.5.28+14491: hostapd[7]: x",
                [TIME, "ap1", "hostapd", "", "x"],
            ),
        ],
    },
    FormDocument {
        form: Form::ProCurve,
        name: "procurve",
        shape: "`TIME HOST NUMBER SUBSYSTEM: TEXT`",
        source: "HPE ArubaOS-Switch and ProCurve, \"Event Log Message Reference Guide\"",
        examples: &[example(
            "<14>Oct 11 22:14:15 192.0.2.7 00076 ports: x",
            [TIME, "192.0.2.7", "ports", "00076", "x"],
        )],
    },
    FormDocument {
        form: Form::Relayed,
        name: "relayed",
        shape: "`TIME HOST ` and a whole header of the device, with or without its priority",
        source: "rsyslog and syslog-ng in front of devices whose headers they do not know; the device's own host and time count",
        examples: &[
            example(
                "<189>Oct 11 22:14:16 192.0.2.1 3397: *Oct 11 22:14:15: %SYS-5-CONFIG_I: x",
                ["2026-10-11T22:14:16Z", "192.0.2.1", "", "SYS-5-CONFIG_I", "x"],
            ),
            example(
                "<13>Oct 11 22:14:16 relay1 <34>Oct 11 22:14:15 gw1 su[3]: x",
                [TIME, "gw1", "su", "", "x"],
            ),
            example(
                "<13>Oct 11 22:14:16 relay1 1 2026-10-11T22:14:15Z gw1 su - - - x",
                [TIME, "gw1", "su", "", "x"],
            ),
        ],
    },
    FormDocument {
        form: Form::Text,
        name: "text",
        shape: "`[PROGRAM[PROCESS]: ][%MNEMONIC: ]TEXT`",
        source: "RFC 3164, section 4.3.3: a priority and anything",
        examples: &[
            example("<13>app[3]: x", ["", "", "app", "", "x"]),
            example("<189>%ASA-6-302013: x", ["", "", "", "ASA-6-302013", "x"]),
            example("<13>any text", ["", "", "", "", "any text"]),
        ],
    },
];

impl Form {
    /// Its documentation.
    pub fn document(self) -> &'static FormDocument {
        FORMS.iter().find(|one| one.form == self).unwrap_or(&FORMS[FORMS.len() - 1])
    }
}
