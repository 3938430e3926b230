//! Rates of what was sent or received.

use std::time::Duration;

/// What `total` of so many datagrams makes per second, when `span` lies between the first and the last of them. Ten datagrams a
/// tenth of a second apart take 0.9 s and are 10 a second: the time belongs to the gaps.
pub(crate) fn per_sec(total: u64, datagrams: u64, span: Duration) -> f64 {
    if datagrams < 2 || span.is_zero() {
        return 0.0;
    }
    total as f64 / datagrams as f64 * (datagrams - 1) as f64 / span.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_belongs_to_the_gaps() {
        let span = Duration::from_millis(900);
        assert!((per_sec(10, 10, span) - 10.0).abs() < 1e-9);
        assert!((per_sec(2_000, 10, span) - 2_000.0).abs() < 1e-9);
        assert_eq!(per_sec(1, 1, Duration::ZERO), 0.0);
        assert_eq!(per_sec(0, 0, span), 0.0);
    }
}
