//! `weir ui`: the link to a daemon's page.

use crate::support::{WEIR, Weir};
use std::fs;
use std::process::Command;
use testkit::TempDir;

/// A token with characters that mean something in an address.
pub(crate) const TOKEN: &str = "correct+horse/battery&staple=0123456789%20#";

/// A daemon that answers with its token alone.
pub(crate) fn with_token(dir: &TempDir) -> Weir {
    fs::write(dir.file("token"), format!("{TOKEN}\n")).unwrap();
    let config = format!(
        "[admin]\ntoken_file = \"{}\"\n[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n\
         [[listener.target]]\nname = \"a\"\nto = \"null:\"\n",
        dir.text("token")
    );
    fs::write(dir.file("weir.toml"), config).unwrap();
    Weir::run(&dir.file("weir.toml"))
}

/// Exit code, standard output and standard error.
pub(crate) fn ui(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(WEIR);
    for name in ["WEIR_ADMIN", "WEIR_TOKEN_FILE", "WEIR_CA_FILE"] {
        command.env_remove(name);
    }
    let output = command.arg("ui").args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_link_is_printed_alone() {
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", "null:"]);
    let expected = format!("{}/\n", weir.url());
    for admin in [weir.url(), weir.admin.to_string(), format!("{}/ledger", weir.url())] {
        let admin = admin.trim_end_matches("/ledger");
        assert_eq!(ui(&["--admin", admin]), (0, expected.clone(), String::new()), "{admin}");
    }
}

#[test]
fn the_link_has_the_token_with_every_character_escaped() {
    let dir = TempDir::new();
    let weir = with_token(&dir);
    let admin = weir.admin.to_string();
    let escaped = "correct%2Bhorse%2Fbattery%26staple%3D0123456789%2520%23";
    let expected = format!("{}/#token={escaped}\n", weir.url());
    let token_file = dir.text("token");
    assert_eq!(ui(&["--admin", &admin, "--token-file", &token_file]).1, expected);

    let (code, printed, said) = ui(&["--admin", &admin]);
    assert_eq!((code, printed.as_str()), (77, ""), "{said}");
    assert!(said.contains("missing token") && said.contains("--token-file FILE"), "{said}");
}

#[test]
fn an_address_without_a_page_gets_no_link() {
    let check = |args: &[&str], expected_code: i32, expected: &str| {
        let (code, printed, said) = ui(args);
        assert_eq!((code, printed.as_str()), (expected_code, ""), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
    };
    check(&["--admin", "/run/weir/admin.sock"], 64, "Fix: set [admin] listen");
    check(&["--admin", "unix:/run/weir/admin.sock"], 64, "a browser cannot open a unix socket");
    check(&["--admin", "127.0.0.1:1"], 69, "Fix: start one with `weir run");
    let dir = TempDir::new();
    fs::write(dir.file("token"), TOKEN).unwrap();
    check(&["--admin", "192.0.2.1:9464", "--token-file", &dir.text("token")], 64, "without TLS");
}
