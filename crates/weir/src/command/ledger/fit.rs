//! Chooses the parts of a page that fit on a screen.

use text::{cut, folded, plural};

/// Lines that are shown or hidden together.
pub(super) struct Block {
    /// The heading above the block. Several blocks in a row with the same heading share one.
    pub(super) heading: String,
    pub(super) lines: String,
    /// The lowest is hidden first.
    pub(super) weight: Weight,
}

/// How important it is to show a block. A larger loss is more important.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Weight {
    Rest,
    State,
    Rate,
    Trouble,
    Loss(u64),
    Verdict,
}

/// The blocks that fit into `rows`, in their order, and a line with the number of hidden rows.
pub(super) fn fit(blocks: &[Block], columns: usize, rows: usize) -> String {
    let all = join(blocks.iter(), columns);
    let rows_of_all = all.lines().count();
    if rows_of_all <= rows {
        return all;
    }

    let mut by_weight: Vec<usize> = (0..blocks.len()).collect();
    by_weight.sort_by_key(|&at| std::cmp::Reverse(blocks[at].weight));
    let mut shown = vec![false; blocks.len()];
    let chosen = |shown: &[bool]| {
        let kept = blocks.iter().zip(shown).filter(|(_, shown)| **shown).map(|(block, _)| block);
        join(kept, columns)
    };
    // Each takes at least one row.
    for at in by_weight.into_iter().take(rows) {
        shown[at] = true;
        // One row is reserved for the line about hidden rows.
        if chosen(&shown).lines().count() >= rows {
            shown[at] = false;
        }
    }

    let text = chosen(&shown);
    let hidden = rows_of_all.saturating_sub(text.lines().count()) as u64;
    let more = format!("… {} hidden: `weir ledger` shows all", plural(hidden, "row", "rows"));
    format!("{text}{}\n", cut(&more, columns))
}

fn join<'a>(blocks: impl Iterator<Item = &'a Block>, columns: usize) -> String {
    let mut text = String::new();
    let mut heading = "";
    for block in blocks {
        if block.heading != heading {
            heading = &block.heading;
            text.push_str(heading);
        }
        text.push_str(&block.lines);
    }
    // Fold at words first. Whatever is still too long is a name, and is cut.
    folded(&text, columns).lines().map(|line| cut(line, columns) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(heading: &str, lines: &str, weight: Weight) -> Block {
        Block { heading: heading.to_owned(), lines: lines.to_owned(), weight }
    }

    fn blocks() -> [Block; 5] {
        [
            block("a\n", "  one\n", Weight::Rest),
            block("a\n", "  two\n  lost 5\n", Weight::Loss(5)),
            block("b\n", "  three\n  lost 9\n", Weight::Loss(9)),
            block("\nrates\n", "  one\n", Weight::Rate),
            block("\nrates\n", "  two\n", Weight::Rate),
        ]
    }

    #[test]
    fn all_of_it_where_there_is_room() {
        let expected = "a\n  one\n  two\n  lost 5\nb\n  three\n  lost 9\n\nrates\n  one\n  two\n";
        assert_eq!(fit(&blocks(), 80, 11), expected);
    }

    #[test]
    fn the_largest_losses_stay_and_the_rest_is_counted() {
        for (rows, expected) in [
            (
                10,
                "a\n  two\n  lost 5\nb\n  three\n  lost 9\n\nrates\n  one\n… 2 rows hidden: `weir ledger` shows all\n",
            ),
            (6, "a\n  one\nb\n  three\n  lost 9\n… 6 rows hidden: `weir ledger` shows all\n"),
            (7, "a\n  two\n  lost 5\nb\n  three\n  lost 9\n"),
            (1, "… 11 rows hidden: `weir ledger` shows all\n"),
        ] {
            let text = fit(&blocks(), 80, rows);
            assert!(text.lines().count() <= rows, "{rows}: {text}");
            assert!(text.starts_with(expected), "{rows}: {text}");
        }
    }

    #[test]
    fn long_lines_are_broken_or_cut() {
        let text = fit(&[block("", "some words here\nkafka://broker\n", Weight::Rest)], 10, 9);
        assert_eq!(text, "some words\n  here\nkafka://b…\n");
    }
}
