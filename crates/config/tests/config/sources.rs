//! Several files as one configuration, and variables of the environment in them.

use config::{Config, ConfigError, Origins, Sources};
use std::fs;
use testkit::TempDir;

fn environment(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("5514".to_owned()),
        "TTL" => Some("3".to_owned()),
        "SITE" => Some("a $ite".to_owned()),
        "NETS" => Some("10.0.0.0/8,192.0.2.0/24".to_owned()),
        "WRONG" => Some("300".to_owned()),
        _ => None,
    }
}

fn parse(sources: &Sources) -> Result<(Config, Origins), Vec<ConfigError>> {
    Config::parse_sources(sources, &environment)
}

fn one(text: &str) -> Result<(Config, Origins), Vec<ConfigError>> {
    parse(&Sources::of("weir.toml", text))
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new();
    for (name, text) in files {
        fs::write(dir.file(name), text).expect("a folder of the test's own");
    }
    dir
}

/// The mistakes in a folder with these files, without its path.
fn mistakes(files: &[(&str, &str)]) -> String {
    let dir = folder(files);
    let sources = Sources::read(dir.path()).expect("its files can be read");
    let errors = parse(&sources).expect_err("there is a mistake");
    config::list(&errors).replace(&format!("{}/", dir.path().display()), "")
}

const LISTENER: &str =
    "[[listener]]\nname = 'in'\nlisten = '127.0.0.1:514'\n[[listener.target]]\nto = 'null:'\n";

#[test]
fn variables_stand_for_texts_numbers_and_lists() {
    let text = "[[listener]]\nname = 'in'\nlisten = '127.0.0.1:${PORT}'\nallow_sources = '${NETS}'\n[[listener.target]]\n\
                name = '${NAME:-old}'\nto = 'udp://10.0.0.1:${PORT}'\nttl = '${TTL}'\n";
    let (config, origins) = one(text).map_err(|errors| config::list(&errors)).unwrap();
    assert_eq!(config.listeners[0].listen.to_string(), "udp://127.0.0.1:5514");
    assert_eq!(config.listeners[0].targets[0].name, "old");
    assert_eq!(config.listeners[0].targets[0].udp().unwrap().ttl, Some(3));

    let shown = config.to_toml(Some(&origins));
    let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    assert!(
        line("listen = \"127.0.0.1:${PORT}\"").ends_with("# weir.toml:3, environment PORT"),
        "{shown}"
    );
    assert!(line("allow_sources = \"${NETS}\"").ends_with("# weir.toml:4, environment NETS"));
    assert!(line("name = \"${NAME:-old}\"").ends_with("# weir.toml:6, default of NAME"));
    assert!(line("ttl = \"${TTL}\"").ends_with("# weir.toml:8, environment TTL"));
    assert!(!shown.contains("5514"), "what a variable holds is not shown: {shown}");
    assert_eq!(one(&shown).unwrap().0, config);

    let json = config.to_json(&origins);
    assert_eq!(json["listener"][0]["listen"]["value"], "127.0.0.1:${PORT}");
    assert_eq!(json["listener"][0]["listen"]["origin"], "weir.toml:3, environment PORT");
}

#[test]
fn a_dollar_is_written_twice_and_shown_so() {
    let text = format!("[sockets]\ntags = {{ price = '5$$', site = '${{SITE}}' }}\n{SINK}");
    let (config, origins) = one(&text).map_err(|errors| config::list(&errors)).unwrap();
    for shown in [config.to_toml(None), config.to_toml(Some(&origins))] {
        assert!(shown.contains("\"5$$\""), "{shown}");
        assert_eq!(one(&shown).unwrap().0, config, "{shown}");
    }
    assert!(config.to_toml(None).contains("\"a $$ite\""));
    assert!(!config.to_toml(Some(&origins)).contains("a $"), "a variable in a table");
}

const SINK: &str = "[[sink]]\nname = 's'\nfrom = ['sockets']\nto = 'null:'\n";

#[test]
fn every_variable_that_is_not_set_is_named_with_its_key_and_line() {
    let text = "[[listener]]\nlisten = '${A}:514'\n[[listener.target]]\nto = '${B}'\nttl = '$C'\n\
                [sockets]\ntags = { site = '${D}' }\n[[sink]]\nname = 's'\nfrom = [\n'sockets',\n'${E}']\nto = 'null:'\n";
    let errors = config::list(&one(text).unwrap_err());
    let expected = [
        "weir.toml:2: listener.listen: the variable A of the environment is not set. Fix: set it where this is started, or write ${A:-default}",
        "weir.toml:4: listener.target.to: the variable B of ",
        "weir.toml:5: listener.target.ttl: a $ begins the name of a variable: write ${NAME}, or ${NAME:-default}, or $$ for a dollar",
        "weir.toml:7: sockets.tags.site: the variable D of ",
        "weir.toml:12: sink.from: the variable E of ",
    ];
    assert_eq!(errors.lines().count(), expected.len(), "{errors}");
    for (line, expected) in errors.lines().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
    }
}

#[test]
fn a_wrong_value_of_a_variable_is_a_mistake_at_its_line() {
    let text = LISTENER.replace("'null:'", "'10.0.0.1:514'\nttl = '${WRONG}'");
    let errors = config::list(&one(&text).unwrap_err());
    assert!(errors.starts_with("weir.toml:6: listener.target.ttl: "), "{errors}");
    // Names of keys are not expanded.
    let errors = config::list(&one(&format!("{LISTENER}\"${{PORT}}\" = 1\n")).unwrap_err());
    assert!(errors.contains("listener.target.${PORT}: unknown key"), "{errors}");
}

#[test]
fn the_files_of_a_folder_add_up_in_the_order_of_their_names() {
    let dir = folder(&[
        (
            "20-out.toml",
            "[admin]\nsocket = '/run/weir/admin.sock'\n[[listener]]\nlisten = '127.0.0.1:515'\n[[listener.target]]\nto = 'null:'\n",
        ),
        ("10-in.toml", &format!("[admin]\nlisten = 'off'\n{LISTENER}")),
        (".hidden.toml", "nonsense"),
        ("30-off.toml.disabled", "nonsense"),
    ]);
    let (config, origins) = parse(&Sources::read(dir.path()).unwrap()).unwrap();
    let names: Vec<&str> = config.listeners.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["in", "udp://127.0.0.1:515"]);
    assert!(config.admin.socket.is_some());

    let shown = config.to_toml(Some(&origins)).replace(&format!("{}/", dir.path().display()), "");
    let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    assert!(line("listen = \"off\"").ends_with("# 10-in.toml:2"), "{shown}");
    assert!(line("socket = ").ends_with("# 20-out.toml:2"), "{shown}");
    assert!(line("listen = \"udp://127.0.0.1:515\"").ends_with("# 20-out.toml:4"), "{shown}");
}

#[test]
fn a_key_that_two_files_set_is_a_mistake_that_names_both() {
    let said = mistakes(&[
        (
            "a.toml",
            &format!(
                "[admin]\nlisten = 'off'\n[metrics.statsd]\nto = '127.0.0.1:8125'\n{LISTENER}"
            ),
        ),
        ("b.toml", "\n[admin]\nlisten = '127.0.0.1:1'\n[metrics.statsd]\nto = '127.0.0.1:8126'\n"),
        ("c.toml", "[[listener.target]]\nto = 'null:'\n"),
    ]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "b.toml:3: admin.listen: it is set at a.toml:2 already. Fix: keep one");
    assert_eq!(
        lines[1],
        "b.toml:5: metrics.statsd.to: it is set at a.toml:4 already. Fix: keep one"
    );
    assert!(
        lines[2].starts_with("c.toml:1: listener: it is written in another way at a.toml:5"),
        "{said}"
    );
    assert_eq!(lines.len(), 3, "{said}");
}

#[test]
fn every_mistake_names_its_own_file_and_line() {
    let said = mistakes(&[
        ("a.toml", &format!("{LISTENER}ttl = 3\n")),
        ("b.toml", "[daemon]\nlog_levle = 'info'\n"),
        (
            "c.toml",
            "[[listener]]\nname = 'in'\nlisten = '127.0.0.1:516'\n[[listener.target]]\nto = 'null:'\n",
        ),
    ]);
    assert!(said.contains("a.toml:6: listener.target.ttl: "), "{said}");
    assert!(said.contains("b.toml:2: daemon.log_levle: unknown key"), "{said}");
    assert!(said.contains("c.toml:2: listener.name: "), "{said}");

    let said = mistakes(&[
        ("a.toml", LISTENER),
        ("b.toml", "x = \n"),
        ("c.toml", "[admin]\nlisten = '${NOT}'\n"),
    ]);
    assert!(said.contains("b.toml:1: this is not TOML"), "{said}");
    assert!(said.contains("c.toml:2: admin.listen: the variable NOT"), "{said}");
}

#[test]
fn a_folder_without_files_says_so() {
    assert!(mistakes(&[("weir.conf", LISTENER)]).contains("no file whose name ends in .toml"));
}
