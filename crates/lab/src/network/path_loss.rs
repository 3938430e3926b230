use std::fmt;
use sys::traffic::Loss;

/// Number of links between the hosts.
const LINKS: i32 = 2;

/// Share of packets lost on the way from one host to the other. Both links have the same loss: `path = 1 - (1 -
/// link)²`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PathLoss {
    link: f64,
}

impl PathLoss {
    /// No loss.
    pub const NONE: PathLoss = PathLoss { link: 0.0 };

    /// Loss with this probability on each link; `None` outside 0 to 1.
    pub fn per_link(probability: f64) -> Option<PathLoss> {
        (0.0..=1.0).contains(&probability).then_some(PathLoss { link: probability })
    }

    /// Loss with this probability on the whole path, in one direction; `None` outside 0 to 1.
    pub fn per_path(probability: f64) -> Option<PathLoss> {
        // 1 - sqrt(1 - p), without the subtraction that would reduce the precision of small probabilities.
        let link = probability / (1.0 + (1.0 - probability).sqrt());
        (0.0..=1.0).contains(&probability).then_some(PathLoss { link })
    }

    /// The probability on one link, 0 to 1.
    pub fn link(self) -> f64 {
        self.link
    }

    /// The probability on the whole path, in one direction, 0 to 1.
    pub fn path(self) -> f64 {
        1.0 - (1.0 - self.link).powi(LINKS)
    }

    pub(super) fn at_link(self) -> Loss {
        Loss::from_probability(self.link()).expect("a link's probability is 0 to 1")
    }

    pub(super) fn at_path(self) -> Loss {
        Loss::from_probability(self.path()).expect("a path's probability is 0 to 1, as a link's is")
    }
}

impl fmt::Display for PathLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |probability: f64| (probability * 1e5).round() / 1e3;
        write!(f, "{} % per path ({} % per link)", percent(self.path()), percent(self.link()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_loses_what_two_links_lose() {
        let check = |link: f64, path: f64| {
            assert!((PathLoss::per_link(link).unwrap().path() - path).abs() < 1e-12);
            assert!((PathLoss::per_path(path).unwrap().link() - link).abs() < 1e-12);
        };
        check(0.0, 0.0);
        check(0.05, 0.0975);
        check(0.1, 0.19);
        check(0.5, 0.75);
        check(1.0, 1.0);
        for probability in [0.0, 1e-9, 0.001, 0.1, 0.2, 0.5, 0.999, 1.0] {
            let loss = PathLoss::per_path(probability).unwrap();
            assert!((loss.path() - probability).abs() < 1e-12, "{probability}");
            let _ = (loss.at_link(), loss.at_path());
        }
        assert_eq!(PathLoss::per_path(0.19).unwrap().to_string(), "19 % per path (10 % per link)");
        for outside in [-0.01, 1.01, f64::NAN] {
            assert_eq!(PathLoss::per_link(outside), None);
            assert_eq!(PathLoss::per_path(outside), None);
        }
    }
}
