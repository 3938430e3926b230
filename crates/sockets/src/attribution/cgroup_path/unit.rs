use super::CgroupPath;

/// Unit types that have a directory of their own (systemd.resource-control(5)), except slices.
const SUFFIXES: &[&str] = &[".service", ".scope", ".socket", ".mount", ".swap"];

/// Directories that container managers put between a container's own and the first slice inside.
const WRAPPERS: &[&str] = &["payload", "supervisor", "container", "ns"];

/// Follows systemd's rule (`cg_path_get_unit`, `cg_path_get_user_unit`): slices first, then one unit; below a user's manager the
/// same once more. Starts over inside a container, as a manager there would see it.
#[derive(Default)]
pub(super) struct Units {
    looking_for: Looking,
    in_container: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Looking {
    #[default]
    Unit,
    UserUnit,
    Nothing,
}

impl Units {
    pub(super) fn enter_container(&mut self) {
        *self = Units { looking_for: Looking::Unit, in_container: true };
    }

    pub(super) fn step<'a>(&mut self, component: &'a str, found: &mut CgroupPath<'a>) {
        if self.looking_for == Looking::Nothing
            || (self.in_container && WRAPPERS.contains(&component))
        {
            return;
        }

        // systemd prefixes names that would clash with the kernel's files (`cg_escape`).
        let name = component.strip_prefix('_').unwrap_or(component);
        if is_named(name, ".slice") {
            self.slice(name, found);
        } else if SUFFIXES.iter().any(|suffix| is_named(name, suffix)) {
            self.unit(name, found);
        } else {
            // Neither slice nor unit ends the search, as in `cg_path_get_unit`.
            self.looking_for = Looking::Nothing;
        }
    }

    fn slice<'a>(&self, name: &'a str, found: &mut CgroupPath<'a>) {
        found.systemd_slice = Some(name);
        // A container may name its slices freely: only those of the host identify a user.
        if !self.in_container && self.looking_for == Looking::Unit {
            let uid = between(name, "user-", ".slice").and_then(number);
            found.owner_uid = uid.or(found.owner_uid);
        }
    }

    fn unit<'a>(&mut self, name: &'a str, found: &mut CgroupPath<'a>) {
        if self.looking_for == Looking::UserUnit {
            found.systemd_user_unit = Some(name);
            self.looking_for = Looking::Nothing;
            return;
        }

        found.systemd_unit = Some(name);
        found.systemd_user_unit = None;
        found.session = between(name, "session-", ".scope");

        self.looking_for = match between(name, "user@", ".service").and_then(number) {
            Some(_) => Looking::UserUnit,
            None => Looking::Nothing,
        };
    }
}

/// Whether the text is a valid unit name of this type (`unit_name_is_valid`).
fn is_named(text: &str, suffix: &str) -> bool {
    text.strip_suffix(suffix).is_some_and(|stem| {
        !stem.is_empty() && !stem.starts_with('@') && stem.bytes().all(is_unit_byte)
    })
}

/// Characters allowed in a unit's name (`VALID_CHARS_WITH_AT` in systemd's `unit-name.c`).
pub(super) fn is_unit_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'-' | b'_' | b'.' | b'\\' | b'@')
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.strip_prefix(before)?.strip_suffix(after).filter(|inner| !inner.is_empty())
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
