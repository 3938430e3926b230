//! The description of the method on the page of UDP against TCP.

use crate::experiment::model::{LossIs, Settings};
use crate::statistics::Bootstrap;
use text::grouped;

pub(super) fn method(settings: &Settings, bootstrap: Bootstrap) -> String {
    let age = if settings.age_sample_interval_ms > 0.0 {
        format!(", sampled every {} ms", settings.age_sample_interval_ms)
    } else {
        String::new()
    };

    format!(
        "<section>\n<h2>Method</h2>\n<ul>\n\
         <li><b>Loss</b> is one way, over the whole path, and the same in both directions, so a round trip fails more often: \
         at 20 % one way, 36 %. It is measured next to the runs with numbered datagrams.</li>\n\
         <li><b>Closed loop</b> (the article's): send, pause, send. A blocked sender makes fewer messages, so its worst times \
         weigh little. <b>Open loop</b>: messages become due at fixed times and wait; delay counts from the due time.</li>\n\
         <li><b>Delay</b> is over all messages of all runs. Quantiles are measured values (the inverse of the empirical \
         distribution), not interpolated.</li>\n\
         <li><b>Under way at the end:</b> both ends are logged. A message that a stream had not delivered when its run ended \
         counts with the time it had taken so far, and figures that depend on it are lower bounds, marked ≥. Datagrams that \
         were lost have no delay and count in delivered/offered.</li>\n\
         <li><b>Age of information:</b> now minus the making of the newest message received{age}.</li>\n\
         <li><b>Intervals</b> are 95 % percentile bootstrap intervals over runs ({} resamples, seed {}): messages of one run \
         depend on each other, runs do not. With few runs they are too narrow: with five, of a normal mean, they cover 84 % \
         instead of 95 %. The interval of a maximum cannot reach above the largest value seen.</li>\n\
         <li><b>A maximum grows with run length.</b> Never compare maxima of runs of different lengths.</li>\n\
         </ul>\n</section>\n",
        grouped(u64::from(bootstrap.resamples)),
        bootstrap.seed
    )
}

pub(super) fn settings_rows(settings: &Settings) -> Vec<(&'static str, String)> {
    let known = |value: u64, unit: &str| {
        if value == 0 { String::new() } else { format!("{}{unit}", grouped(value)) }
    };
    let losses = match settings.loss_is {
        LossIs::PerPath => "per path, one way",
        LossIs::PerLink => "per link end; a path crosses two",
    };

    vec![
        ("message", known(settings.message_bytes as u64, " bytes")),
        ("rate", format!("{}/s", settings.rate_per_sec)),
        ("run", format!("{} s, unless a table says otherwise", settings.duration_s)),
        ("runs per point", settings.runs.to_string()),
        ("runs at a time", known(u64::from(settings.parallel_runs), "")),
        ("loss rates asked for", losses.to_owned()),
        ("loss injected by", settings.injector.clone()),
        (
            "losses in a row",
            settings
                .loss_burst_packets
                .map(|packets| format!("{packets} packets of a flow, on average"))
                .unwrap_or_default(),
        ),
        ("privilege", settings.privilege.clone()),
        (
            "round trip",
            match settings.round_trip_ms {
                0.0 => "the host's own".to_owned(),
                ms => format!("{ms} ms and the host's own"),
            },
        ),
        (
            "path carries",
            settings
                .path_bits_per_sec
                .map(|bits| format!("{} bit/s", grouped(bits)))
                .unwrap_or_default(),
        ),
        ("path MTU", known(u64::from(settings.mtu_bytes), " bytes")),
        (
            "gso_max_segs",
            settings.gso_max_segs.map(|segments| segments.to_string()).unwrap_or_default(),
        ),
    ]
}
