//! Suggests the line that was probably meant where a document is not TOML.

/// What to write in place of the line.
pub(crate) fn fix(line: &str) -> String {
    let line = line.trim();
    let meant = header(line).or_else(|| pair(line));
    meant.map_or_else(
        || "compare it with `weir config example`".to_owned(),
        |meant| format!("write {meant}"),
    )
}

/// `[listener` and `[[listener]`.
fn header(line: &str) -> Option<String> {
    let name = line.trim_matches(['[', ']']);
    let is_name = !name.is_empty() && name.bytes().all(|byte| is_key(byte) || byte == b'.');
    match (line.starts_with("[["), line.starts_with('[')) {
        (true, _) if is_name => Some(format!("[[{name}]]")),
        (_, true) if is_name => Some(format!("[{name}]")),
        _ => None,
    }
}

/// `key = value` with missing quotes, one quote, backslashes, or a colon.
fn pair(line: &str) -> Option<String> {
    let (key, value) = line.split_once(['=', ':'])?;
    let (key, value) = (key.trim().trim_start_matches("- "), value.trim());
    if key.is_empty() || !key.bytes().all(is_key) || value.is_empty() {
        return None;
    }
    let bare = value.trim_matches(['"', '\'']);
    if value.starts_with(['[', '{']) || bare.contains(['"', '\'']) {
        return None;
    }
    Some(match bare {
        "yes" | "on" => format!("{key} = true"),
        "no" => format!("{key} = false"),
        bare if bare.contains('\\') => format!("{key} = '{bare}'"),
        bare => format!("{key} = \"{bare}\""),
    })
}

fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_as_it_was_meant() {
        for (line, meant) in [
            ("listen = 127.0.0.1:514", "write listen = \"127.0.0.1:514\""),
            ("listen = \"127.0.0.1:514", "write listen = \"127.0.0.1:514\""),
            ("  - listen: 127.0.0.1:514", "write listen = \"127.0.0.1:514\""),
            ("to = \"file:C:\\logs\"", "write to = 'file:C:\\logs'"),
            ("json = yes", "write json = true"),
            ("[listener", "write [listener]"),
            ("[[listener.target]", "write [[listener.target]]"),
            ("from = [\"a\"", "compare it with `weir config example`"),
            ("no capture", "compare it with `weir config example`"),
        ] {
            assert_eq!(fix(line), meant, "{line}");
        }
    }
}
