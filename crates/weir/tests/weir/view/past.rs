//! The page's history, from the store of a daemon.

use super::{Held, Rig, answer, browser, drive};
use serde_json::json;
use testkit::TempDir;

/// A store that writes soon what it is given.
fn store(dir: &TempDir) -> String {
    format!(
        "[[sink]]\nname = \"history\"\nfrom = [\"sockets\", \"flows\"]\nto = \"store:{}\"\nbatch_age = \"100ms\"\n",
        dir.text("history")
    )
}

#[test]
fn the_past_is_what_the_store_answers_digit_by_digit() {
    let Some(_browser) = browser() else { return };
    let (rig, held) = (Rig::with(store), Held::new());
    // Ends that the store is to have.
    drop(Held::new());
    let mut question = rig.question();
    question["held"] = json!({ "port": held.port, "count": Held::COUNT });
    let seen = answer(drive("past.cjs", &question));
    assert!(seen["named"].as_u64() >= Some(9), "{seen}");
}
