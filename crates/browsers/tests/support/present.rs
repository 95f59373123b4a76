//! Browsers that a test needs and that may not be there.
//!
//! No test passes silently without its browser. Where everything has to be tested (in the gate, and
//! where `HOLDFAST_ALL_BROWSERS` is set) a missing one is a failure that says what to install. On a
//! person's machine it is noted in a file, and `cargo xtask test` ends with what was not tested.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::path::Path;

use holdfast_browsers::{Found, Installed, Kind, find};

/// The browser of a kind; `None`, and noted, where it is not there and need not be.
pub fn present(kind: Kind) -> Option<Installed> {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let found: Found = find(&scratch.join("browsers"), &|_| ());
    let error = match found.pick(Some(kind)) {
        Ok(browser) => return Some(browser.clone()),
        Err(error) => error.to_string(),
    };
    let advice = match kind {
        Kind::Firefox => "`apt-get install firefox-esr`",
        Kind::WebKit => "`apt-get install webkit2gtk-driver xvfb`",
        _ => "its own installer",
    };
    let must = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    assert!(
        !must("CI") && !must("HOLDFAST_ALL_BROWSERS"),
        "{kind} must be tested here, and is missing: install it with {advice}\n{error}"
    );
    untested(&kind.to_string(), advice);
    None
}

/// Notes that something was not tested, and what to do about it.
pub fn untested(what: &str, advice: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("untested");
    std::fs::create_dir_all(&folder).expect("cannot note what is not tested");
    let line = format!("{what}: it is not on this machine; get it with {advice}\n");
    std::fs::write(folder.join(what), line).expect("cannot note what is not tested");
}
