//! Which browsers to start, and how patient to be with them.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::ArgPredicate;
use holdfast_browsers::Kind;
use holdfast_devices::ModelKind;

/// Which browsers to start.
#[derive(clap::Args, Clone)]
pub(crate) struct BrowserArgs {
    /// The browser to start: chrome, chromium, edge, packaged, firefox or webkit; or several with
    /// commas, the preferred one first [default: the first that is there]
    #[arg(long, value_name = "KIND", value_delimiter = ',', conflicts_with = "browser_program")]
    pub(crate) browser: Vec<Kind>,
    /// The program to start as the browser [default: what HOLDFAST_BROWSER says, if --browser says
    /// nothing]
    // Not read by clap, to which it would be as good as typed.
    #[arg(long, value_name = "FILE")]
    pub(crate) browser_program: Option<PathBuf>,
    /// Start the browser with a window
    #[arg(long)]
    pub(crate) window: bool,
    /// Wait this many times as long before a kind of model in a browser counts as hung: text,
    /// vision, audio, generation, multimodal, other; or `large` for large inputs; may be repeated
    #[arg(long, value_name = "KIND=FACTOR", value_parser = parse_patience)]
    pub(crate) patience: Vec<(Patience, f64)>,
}

impl BrowserArgs {
    /// The program to start before any kind: the one that was typed, or else the usual one of whoever
    /// runs this, who typed nothing.
    pub(crate) fn program(&self) -> Option<PathBuf> {
        let usual = || std::env::var_os("HOLDFAST_BROWSER").filter(|path| !path.is_empty());
        let typed = self.browser_program.clone();
        typed.or_else(|| self.browser.is_empty().then(usual)?.map(PathBuf::from))
    }
}

/// What to run on where nothing is said of that, by what is said of browsers: nobody who names one
/// wants the processor.
pub(crate) const DEVICE_DEFAULTS: [(&str, ArgPredicate, &str); 5] = [
    ("browser", ArgPredicate::IsPresent, "browser"),
    ("browser_program", ArgPredicate::IsPresent, "browser"),
    ("window", ArgPredicate::IsPresent, "browser"),
    ("browsers", ArgPredicate::IsPresent, "browser"),
    ("lanes", ArgPredicate::IsPresent, "browser"),
];

/// Which browsers to start, and how many.
#[derive(clap::Args, Clone)]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
    /// How many browsers to start: a number, or LEAST-MOST to follow the load
    #[arg(long, value_name = "N")]
    pub(crate) browsers: Option<Browsers>,
    /// Lanes of each backend in each browser: models run at the same time in different lanes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) lanes: Option<u16>,
}

impl FleetArgs {
    /// Whether the user said anything about browsers.
    pub(crate) fn is_set(&self) -> bool {
        let FleetArgs { browser, browsers, lanes } = self;
        let BrowserArgs { browser, browser_program, window, patience } = browser;
        let of_one = !browser.is_empty() || browser_program.is_some() || *window;
        of_one || !patience.is_empty() || browsers.is_some() || lanes.is_some()
    }
}

/// How many browsers there are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Browsers {
    pub(crate) min: usize,
    pub(crate) max: usize,
}

/// More than any machine runs.
const MOST: usize = 64;

impl FromStr for Browsers {
    type Err = String;

    fn from_str(text: &str) -> Result<Browsers, String> {
        let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number <= MOST);
        let (min, max) = match text.split_once('-') {
            Some((min, max)) => (number(min), number(max)),
            None => (number(text), number(text)),
        };
        match (min, max) {
            (Some(min), Some(max)) if min <= max && max > 0 => Ok(Browsers { min, max }),
            _ => Err(format!("expected a number from 1 to {MOST}, or LEAST-MOST such as 0-4")),
        }
    }
}

/// What a user can be more patient with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Patience {
    Kind(ModelKind),
    LargeInputs,
}

fn parse_patience(text: &str) -> Result<(Patience, f64), String> {
    let (name, factor) = text.split_once('=').ok_or("expected KIND=FACTOR, such as vision=3")?;
    let what = match name {
        "large" => Patience::LargeInputs,
        "text" => Patience::Kind(ModelKind::Text),
        "vision" => Patience::Kind(ModelKind::Vision),
        "audio" => Patience::Kind(ModelKind::Audio),
        "generation" => Patience::Kind(ModelKind::Generation),
        "multimodal" => Patience::Kind(ModelKind::Multimodal),
        "other" => Patience::Kind(ModelKind::Other),
        _ => return Err(format!("`{name}` is not a kind of model")),
    };
    let factor = factor.parse().ok().filter(|factor| (0.01..=10_000.0).contains(factor));
    Ok((what, factor.ok_or("the factor has to be a number between 0.01 and 10000")?))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn who_names_a_browser_and_no_device_gets_the_browser() {
        let device = |typed: &[&str]| {
            let arguments = ["holdfast", "run", "m"].iter().chain(typed);
            match Args::try_parse_from(arguments).unwrap().command {
                Command::Run(args) => args.device.to_string(),
                _ => unreachable!("that is no `run`"),
            }
        };
        let browsers: [&[&str]; 5] = [
            &["--browser", "firefox"],
            &["--browser-program", "/bin/x"],
            &["--browsers", "2"],
            &["--lanes", "2"],
            &["--window"],
        ];
        for typed in browsers {
            assert_eq!(device(typed), "browser", "{typed:?}");
            assert_eq!(device(&[typed, &["--device", "cpu"]].concat()), "cpu", "{typed:?}");
        }
        // These say nothing about where.
        for typed in [&[] as &[&str], &["--patience", "text=2"], &["--threads", "1"]] {
            assert_eq!(device(typed), "cpu", "{typed:?}");
        }
    }

    #[test]
    fn a_number_of_browsers_is_fixed_and_a_range_follows_the_load() {
        let check = |text: &str, min, max| {
            assert_eq!(text.parse::<Browsers>(), Ok(Browsers { min, max }), "{text}");
        };
        check("2", 2, 2);
        check("1-4", 1, 4);
        check("0-1", 0, 1);
    }

    #[test]
    fn what_is_no_number_of_browsers_is_refused() {
        for text in ["", "0", "0-0", "4-1", "-1", "1-", "many", "65", "1-2-3"] {
            assert!(text.parse::<Browsers>().is_err(), "{text}");
        }
    }
}
