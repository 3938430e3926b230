//! Server reflection, so that clients need no files: <https://github.com/grpc/grpc/blob/master/doc/server-reflection.md>.

use crate::message::{Message, Value, fields};
use std::sync::OnceLock;

/// Both versions have the same messages; clients ask for the newer one first, and some know only the older one.
pub(super) const PATHS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// The files of proto/, as a `FileDescriptorSet` in which each file comes after those that it names.
const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");

const SERVICES: [&str; 2] = ["weir.v1.Ledger", "weir.v1.Records"];
const PACKAGE: &str = "weir.v1.";

/// One file, with the names that it defines in the package.
struct File {
    bytes: &'static [u8],
    name: String,
    symbols: Vec<String>,
}

fn files() -> &'static [File] {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    FILES.get_or_init(|| {
        let set = fields(DESCRIPTORS).unwrap_or_default();
        set.into_iter().filter_map(|(_, file)| bytes(file)).map(file).collect()
    })
}

fn bytes(value: Value<'_>) -> Option<&[u8]> {
    match value {
        Value::Bytes(bytes) => Some(bytes),
        Value::Number(_) => None,
    }
}

fn file(bytes: &'static [u8]) -> File {
    let mut file = File { bytes, name: String::new(), symbols: Vec::new() };
    for (number, value) in fields(bytes).unwrap_or_default() {
        match number {
            1 => file.name = value.text().unwrap_or_default().to_owned(),
            // Messages, enums and services: the name is their first field.
            4..=6 => file.symbols.extend(names(value, 1)),
            _ => {}
        }
    }
    file
}

/// The texts of a field of a message.
fn names(message: Value<'_>, of: u32) -> Vec<String> {
    let Value::Bytes(message) = message else { return Vec::new() };
    let names = fields(message).unwrap_or_default().into_iter();
    names
        .filter(|(number, _)| *number == of)
        .filter_map(|(_, name)| name.text().ok().map(str::to_owned))
        .collect()
}

const NOT_FOUND: u64 = 5;
const UNIMPLEMENTED: u64 = 12;

/// The reply to one request.
///
/// # Errors
/// The request cannot be read.
pub(super) fn answer(request: &[u8]) -> Result<Message, String> {
    let mut reply = Message::default();
    for (number, value) in fields(request)? {
        reply = match number {
            1 => reply.bytes(1, value.text()?),
            3 => with_file(reply, value.text()?, |file, name| file.name == name),
            4 => with_file(reply, value.text()?, defines),
            7 => {
                let services = SERVICES.iter().fold(Message::default(), |list, name| {
                    list.bytes(1, Message::default().bytes(1, name).0)
                });
                reply.bytes(6, services.0)
            }
            _ => with_error(reply, UNIMPLEMENTED, "there are no extensions"),
        };
    }
    Ok(reply.bytes(2, request))
}

/// Whether a file defines a name, or the message or service that it is in.
fn defines(file: &File, symbol: &str) -> bool {
    let Some(name) = symbol.strip_prefix(PACKAGE) else { return false };
    let outermost = name.split('.').next().unwrap_or(name);
    file.symbols.iter().any(|symbol| symbol == outermost)
}

/// Adds the file that is asked for, with all before it, which are those that it names.
fn with_file(reply: Message, asked: &str, is_it: impl Fn(&File, &str) -> bool) -> Message {
    match files().iter().position(|file| is_it(file, asked)) {
        Some(at) => {
            let found = files()[..=at].iter().rev();
            let found = found.fold(Message::default(), |all, file| all.bytes(1, file.bytes));
            reply.bytes(4, found.0)
        }
        None => with_error(reply, NOT_FOUND, "no file of this server has it"),
    }
}

fn with_error(reply: Message, code: u64, text: &str) -> Message {
    reply.bytes(7, Message::default().number(1, code).bytes(2, text).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptors_define_the_services_and_what_they_send() {
        for symbol in ["weir.v1.Records.Follow", "weir.v1.Ledger", "weir.v1.SocketRecord"] {
            assert!(files().iter().any(|file| defines(file, symbol)), "{symbol}");
        }
        let names: Vec<_> = files().iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["weir.proto", "weir_grpc.proto"]);
        assert!(!files().iter().any(|file| defines(file, "weir.v1.Nothing")));
    }
}
