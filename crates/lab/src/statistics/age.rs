/// A message that arrived: when it was made and when it arrived, on one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub made_ns: u64,
    pub arrived_ns: u64,
}

/// The age of information every `step_ns` from `began_ns` on, up to and with `ended_ns`: the time minus the making of the
/// newest message that has arrived until then, or minus `began_ns` until the first has. In the order of time.
///
/// `deliveries` are in the order of their arrival. Newest means made last, whichever way they overtook each other. A
/// step of 0 counts as 1 ns.
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
        // A message that was overtaken makes nothing younger.
        check(&[(125, 128), (105, 130)], &[0, 10, 20, 5, 15, 25]);
        // Two in one step: the newer counts.
        check(&[(121, 122), (124, 125)], &[0, 10, 20, 6, 16, 26]);
    }
}
