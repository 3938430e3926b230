//! Colors of texts for people.

/// Whether texts have colors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ink {
    Plain,
    Color,
}

impl Ink {
    /// The text with each line in the color of its tint.
    pub fn paint(self, text: &str, tint: impl Fn(&str) -> Tint) -> String {
        if self == Ink::Plain {
            return text.to_owned();
        }
        let paint = |line: &str| {
            let text = line.trim_end_matches('\n');
            let end = &line[text.len()..];
            self.tinted(text, tint(text)) + end
        };
        text.split_inclusive('\n').map(paint).collect()
    }

    /// A text without a line break, in this color.
    pub fn tinted(self, text: &str, tint: Tint) -> String {
        match (self, tint) {
            (Ink::Plain, _) | (_, Tint::Plain) => text.to_owned(),
            (Ink::Color, tint) => format!("{}{text}{}", tint.sequence(), Tint::END),
        }
    }
}

/// How a text looks on a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tint {
    Plain,
    Dim,
    Heading,
    /// All is well.
    Good,
    /// Something to look at.
    Notice,
    /// Something is wrong.
    Alarm,
}

impl Tint {
    /// What ends every tint but [`Tint::Plain`].
    pub const END: &str = "\x1b[0m";

    /// The terminal's sequence (ECMA-48, SGR); empty for [`Tint::Plain`].
    pub fn sequence(self) -> &'static str {
        match self {
            Tint::Plain => "",
            Tint::Dim => "\x1b[2m",
            Tint::Heading => "\x1b[1m",
            Tint::Good => "\x1b[32m",
            Tint::Notice => "\x1b[33m",
            Tint::Alarm => "\x1b[31m",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_painted_by_what_it_is_about() {
        let tint = |line: &str| if line == "bad" { Tint::Alarm } else { Tint::Plain };
        assert_eq!(Ink::Color.paint("bad\nworse\n", tint), "\x1b[31mbad\x1b[0m\nworse\n");
        assert_eq!(Ink::Plain.paint("bad\n", tint), "bad\n");
    }
}
