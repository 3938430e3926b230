//! Reading any text must not panic, and every text that is refused is told why. What is accepted, shown as TOML, reads as
//! the same configuration, with and without the words about where each value came from.

#![no_main]

use config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Config::parse_with_origins(text, "fuzz") {
        Ok((config, origins)) => {
            shown_again(&config, &config.to_toml(None));
            shown_again(&config, &config.to_toml(Some(&origins)));
            let _ = config.budget();
        }
        Err(errors) => told(&errors),
    }
    // The same bytes as addresses: listeners before the first empty line, targets behind it.
    let (listen, to) = text.split_once("\n\n").unwrap_or((text, "null:"));
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    match Config::from_addresses(&lines(listen), &lines(to)) {
        Ok(config) => shown_again(&config, &config.to_toml(None)),
        Err(errors) => told(&errors),
    }
});

fn shown_again(config: &Config, shown: &str) {
    match Config::parse(shown, "shown") {
        Ok(again) => assert_eq!(again, *config, "{shown}"),
        Err(errors) => panic!("{}\n{shown}", config::list(&errors)),
    }
}

fn told(errors: &[config::ConfigError]) {
    assert!(!errors.is_empty());
    assert!(errors.iter().all(|error| !error.message.is_empty() && error.line != Some(0)));
}
