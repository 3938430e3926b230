//! Verdicts that may be open.

use std::ops::Not;

/// A filter's verdict on a socket. Missing information leaves open whatever depends on it, and nothing else (Kleene's strong
/// three-valued logic, 1938).
///
/// | `a` | `b` | `a and b` | `a or b` |
/// |---|---|---|---|
/// | false | unknown | false | unknown |
/// | true | unknown | unknown | true |
/// | unknown | unknown | unknown | unknown |
///
/// `not unknown` is unknown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// It does not pass, whatever else may become known.
    False,
    /// What is known does not decide it.
    Unknown,
    /// It passes, whatever else may become known.
    True,
}

impl Verdict {
    /// The conjunction; true if empty.
    #[must_use]
    pub fn all(parts: impl IntoIterator<Item = Verdict>) -> Verdict {
        let mut together = Verdict::True;
        for part in parts {
            together = together.min(part);
            if together == Verdict::False {
                break;
            }
        }
        together
    }

    /// The disjunction; false if empty.
    #[must_use]
    pub fn any(parts: impl IntoIterator<Item = Verdict>) -> Verdict {
        let mut together = Verdict::False;
        for part in parts {
            together = together.max(part);
            if together == Verdict::True {
                break;
            }
        }
        together
    }

    /// The verdict for a value that may be unknown.
    #[must_use]
    pub fn known(value: Option<bool>) -> Verdict {
        value.map_or(Verdict::Unknown, Verdict::from)
    }

    /// Whether it certainly passes.
    #[must_use]
    pub fn passes(self) -> bool {
        self == Verdict::True
    }
}

impl From<bool> for Verdict {
    fn from(value: bool) -> Verdict {
        if value { Verdict::True } else { Verdict::False }
    }
}

impl Not for Verdict {
    type Output = Verdict;

    fn not(self) -> Verdict {
        match self {
            Verdict::False => Verdict::True,
            Verdict::Unknown => Verdict::Unknown,
            Verdict::True => Verdict::False,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{self, False, True, Unknown};

    /// An open part may turn out either way, so a verdict is certain only if both ways give it.
    #[test]
    fn an_answer_is_certain_where_it_does_not_depend_on_what_is_open() {
        let ways = |verdict| match verdict {
            Unknown => vec![false, true],
            certain => vec![certain == True],
        };
        let check = |found: Verdict, a, b, f: fn(bool, bool) -> bool| {
            let all: Vec<_> = ways(a)
                .into_iter()
                .flat_map(|a| ways(b).into_iter().map(move |b| f(a, b)))
                .collect();
            let is_certain = all.iter().all(|way| *way == all[0]);
            let expected = if is_certain { Verdict::from(all[0]) } else { Unknown };
            assert_eq!(found, expected, "{a:?} {b:?}");
        };
        for a in [False, Unknown, True] {
            check(!a, a, True, |a, _| !a);
            for b in [False, Unknown, True] {
                check(Verdict::all([a, b]), a, b, |a, b| a && b);
                check(Verdict::any([a, b]), a, b, |a, b| a || b);
            }
        }
        assert_eq!((Verdict::all([]), Verdict::any([])), (True, False));
    }
}
