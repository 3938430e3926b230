use super::bootstrap::Interval;

/// The exact interval (Clopper and Pearson 1934) of a probability, after `hits` in `trials`. It contains the true
/// probability with at least `confidence` (0 to 1, for example 0.999). Without trials it is 0 to 1; more hits than trials
/// count as all.
pub fn clopper_pearson(hits: u64, trials: u64, confidence: f64) -> Interval {
    if trials == 0 {
        return Interval { low: 0.0, high: 1.0 };
    }
    let (hits, trials) = (hits.min(trials) as f64, trials as f64);
    let tail = (1.0 - confidence) / 2.0;
    let low = if hits == 0.0 { 0.0 } else { beta_quantile(tail, hits, trials - hits + 1.0) };
    let high =
        if hits == trials { 1.0 } else { beta_quantile(1.0 - tail, hits + 1.0, trials - hits) };
    Interval { low, high }
}

/// The value that a beta distribution does not exceed with probability `share`, by bisection.
fn beta_quantile(share: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    // 2^-60 is less than the distance of neighboring floating-point numbers near any relevant probability.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if beta_share(middle, a, b) < share { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The regularized incomplete beta function I_x(a, b). Uses its continued fraction on the side where it converges fast
/// (Abramowitz and Stegun 26.5.8).
fn beta_share(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    let front = |x: f64, a: f64, b: f64| {
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a
    };
    if x < (a + 1.0) / (a + b + 2.0) {
        front(x, a, b) * beta_fraction(x, a, b)
    } else {
        1.0 - front(1.0 - x, b, a) * beta_fraction(1.0 - x, b, a)
    }
}

/// The continued fraction, by Lentz's method. A million trials need a few thousand steps.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    let away_from_zero = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;

    for step in 1..100_000 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));

        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            change = c * d;
            fraction *= change;
        }

        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    fraction
}

/// The logarithm of the gamma function for `x` > 0: moves the argument above 10, then uses Stirling's series, where six
/// terms have an error below 1e-15.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 10.0 {
        shift += x.ln();
        x += 1.0;
    }
    let series =
        [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360_360.0];
    let square = x * x;
    let correction = series.iter().rev().fold(0.0, |sum, term| sum / square + term) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + correction - shift
}

#[cfg(test)]
mod tests {
    use super::*;

    // scipy 1.17.1: scipy.stats.binomtest(hits, trials).proportion_ci(confidence, "exact").
    fn check(hits: u64, trials: u64, confidence: f64, low: f64, high: f64) {
        let interval = clopper_pearson(hits, trials, confidence);
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-8 * b.max(1e-2);
        assert!(
            close(interval.low, low) && close(interval.high, high),
            "{hits} of {trials}: {interval:?}"
        );
    }

    #[test]
    fn few_trials() {
        check(0, 10, 0.95, 0.0, 0.30849710781876294);
        check(10, 10, 0.95, 0.6915028921812371, 1.0);
        check(3, 10, 0.95, 0.06673951117773447, 0.652452850060008);
        check(50, 100, 0.99, 0.36886143735890525, 0.6311385626410948);
    }

    #[test]
    fn a_million_trials() {
        check(1, 1_000_000, 0.999, 5.001412885135032e-10, 9.998632470316828e-6);
        check(1_000, 1_000_000, 0.999, 0.0008992535622823516, 0.0011083339367534873);
        check(200_123, 1_000_000, 0.999, 0.1988082545042075, 0.20144227711194665);
        check(499_000, 1_000_000, 0.999, 0.4973542523483668, 0.5006457627616188);
    }

    #[test]
    fn no_trials_say_nothing() {
        check(0, 0, 0.95, 0.0, 1.0);
        check(5, 3, 0.95, clopper_pearson(3, 3, 0.95).low, 1.0);
    }
}
