//! Maps the few names of congestion controls to one-byte numbers for the table.

/// The names met so far, in order.
#[derive(Default)]
pub(crate) struct Congestions(Vec<String>);

impl Congestions {
    /// The number of a name. 0 for none, and for names that no longer fit.
    pub(crate) fn number(&mut self, name: Option<&str>) -> u8 {
        let Some(name) = name else { return 0 };
        let known = self.0.iter().position(|known| known == name);
        let at = known.unwrap_or(self.0.len());
        if known.is_none() && at < usize::from(u8::MAX) {
            self.0.push(name.to_owned());
        }
        u8::try_from(at + 1).unwrap_or(0)
    }

    /// The name with a number.
    pub(crate) fn name(&self, number: u8) -> Option<&str> {
        let at = usize::from(number).checked_sub(1)?;
        self.0.get(at).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers_until_a_byte_is_full() {
        let mut congestions = Congestions::default();
        assert_eq!((congestions.number(None), congestions.name(0)), (0, None));
        for at in 1..=300_u16 {
            let name = format!("cc{at}");
            let number = u8::try_from(at).unwrap_or(0);
            assert_eq!(congestions.number(Some(&name)), number);
            assert_eq!(congestions.number(Some(&name)), number);
            assert_eq!(congestions.name(number), (number > 0).then_some(&*name));
        }
    }
}
