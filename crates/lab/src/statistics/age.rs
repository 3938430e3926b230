/// When a message that arrived was made, and when it arrived, on one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub made_ns: u64,
    pub arrived_ns: u64,
}

/// The age of information every `step_ns` from `began_ns` up to and including `ended_ns`, in the order of time. The age
/// is the time since the newest message that has arrived was made or, before the first arrival, since `began_ns`.
///
/// `deliveries` are in the order of arrival. The newest message is the one that was made last, even if others overtook
/// it. A step of 0 counts as 1 ns.
pub fn age_at_intervals(
    deliveries: &[Delivery],
    began_ns: u64,
    ended_ns: u64,
    step_ns: u64,
) -> Vec<u64> {
    let mut waiting = deliveries.iter().peekable();
    let mut newest_ns = began_ns;

    let times = (began_ns..=ended_ns).step_by(step_ns.max(1) as usize);
    times
        .map(|now_ns| {
            while let Some(delivery) = waiting.next_if(|delivery| delivery.arrived_ns <= now_ns) {
                newest_ns = newest_ns.max(delivery.made_ns);
            }
            now_ns.saturating_sub(newest_ns)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(deliveries: &[(u64, u64)], expected: &[u64]) {
        let deliveries: Vec<Delivery> = deliveries
            .iter()
            .map(|&(made_ns, arrived_ns)| Delivery { made_ns, arrived_ns })
            .collect();
        assert_eq!(age_at_intervals(&deliveries, 100, 150, 10), expected);
    }

    #[test]
    fn age_grows_until_something_newer_arrives() {
        check(&[], &[0, 10, 20, 30, 40, 50]);
        check(&[(105, 110), (125, 140)], &[0, 5, 15, 25, 15, 25]);
        // A message that was overtaken does not reduce the age.
        check(&[(125, 128), (105, 130)], &[0, 10, 20, 5, 15, 25]);
        // Two arrivals in one step: the newer message counts.
        check(&[(121, 122), (124, 125)], &[0, 10, 20, 6, 16, 26]);
    }
}
