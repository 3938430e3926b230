//! What is wrong with a filter, and where.

use std::fmt;
use std::ops::Range;

/// A filter that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    /// The wrong bytes of the filter. Empty, at the end, when something is missing.
    pub span: Range<usize>,
    /// The mistake, in one line.
    pub message: String,
    /// The likely correction, if there is one.
    pub help: Option<String>,
    text: String,
}

/// Something that a filter does and that its author may not expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The bytes of the filter that the note is about.
    pub span: Range<usize>,
    /// The behavior, in one line.
    pub message: String,
}

/// Characters shown on each side of the mistake in a long filter.
const CONTEXT_CHARS: usize = 50;

impl FilterError {
    pub(super) fn new(
        text: &str,
        span: Range<usize>,
        message: impl Into<String>,
        help: Option<String>,
    ) -> Self {
        Self { span, message: message.into(), help, text: text.to_owned() }
    }

    /// The filter with a caret under the mistake: two lines, indented by two columns.
    #[must_use]
    pub fn underlined(&self) -> String {
        let before = self.text.get(..self.span.start).unwrap_or_default();
        let wrong = self.text.get(self.span.clone()).unwrap_or_default();
        let after = self.text.get(self.span.end..).unwrap_or_default();

        let cut_left = before.chars().count().saturating_sub(CONTEXT_CHARS);
        let lead: String = if cut_left > 0 { "…" } else { "" }
            .chars()
            .chain(before.chars().skip(cut_left))
            .collect();

        let shown_wrong: String = wrong.chars().take(2 * CONTEXT_CHARS).collect();
        let tail: String = after.chars().take(CONTEXT_CHARS).collect();
        let more = if after.chars().count() > CONTEXT_CHARS { "…" } else { "" };

        // Control characters would move the cursor, and the carets with it.
        let line: String = format!("{lead}{shown_wrong}{tail}{more}")
            .chars()
            .map(|c| if c.is_control() || c == '\t' { ' ' } else { c })
            .collect();

        let carets = "^".repeat(shown_wrong.chars().count().max(1));
        format!("  {line}\n  {}{carets}", " ".repeat(lead.chars().count()))
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.message, self.underlined())?;
        match &self.help {
            Some(help) => write!(f, "\nFix: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FilterError {}

/// The known word closest to `word`, if at most a third of its letters differ.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: String = word.chars().take(40).flat_map(char::to_lowercase).collect();
    let limit = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= limit && distance < candidate.chars().count())
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Number of insertions, deletions, replacements and swaps of neighboring letters that turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];

    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            // Two neighboring letters are swapped.
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }

    rows[a.len()][b.len()]
}
