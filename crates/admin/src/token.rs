use std::fmt;
use std::hint::black_box;

/// Fewest characters of a token: a shorter one could be guessed by someone who can try all day.
pub const TOKEN_CHARS_MIN: usize = 16;

/// The secret that a client must send. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Accepts a token that fits in a header: at least [`TOKEN_CHARS_MIN`] visible ASCII characters.
    ///
    /// # Errors
    /// What is wrong with it, without repeating it.
    pub fn new(text: &str) -> Result<Token, String> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token has no blanks and only ASCII characters".to_owned());
        }
        match text.len() {
            TOKEN_CHARS_MIN.. => Ok(Token(text.to_owned())),
            len => Err(format!("a token has at least {TOKEN_CHARS_MIN} characters, not {len}")),
        }
    }

    /// Whether an `Authorization` header has this token. Takes the same time for every wrong token of the same length.
    pub(crate) fn is_in(&self, header: &[u8]) -> bool {
        let Some((scheme, shown)) = header.split_at_checked(SCHEME.len()) else { return false };
        let is_bearer = scheme.eq_ignore_ascii_case(SCHEME);
        let wanted = self.0.as_bytes();
        let differences = wanted.iter().zip(shown).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
        is_bearer && wanted.len() == shown.len() && differences == 0
    }
}

const SCHEME: &[u8] = b"Bearer ";

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0123456789abcdef";

    #[test]
    fn a_token_is_long_and_visible() {
        assert!(Token::new(TEXT).is_ok());
        for text in
            ["", "short", &TEXT[1..], "0123456789 abcdef", "0123456789abcdéf", "0123456789abcdef\n"]
        {
            let error = Token::new(text).unwrap_err();
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
        assert_eq!(format!("{:?}", Token::new(TEXT).unwrap()), "Token");
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::new(TEXT).unwrap();
        let check = |header: &str, expected| {
            assert_eq!(token.is_in(header.as_bytes()), expected, "{header}")
        };
        check("Bearer 0123456789abcdef", true);
        check("bearer 0123456789abcdef", true);
        for header in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdeg",
            "Bearer 0123456789abcdef0",
            "Bearer  0123456789abcdef",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            check(header, false);
        }
    }
}
