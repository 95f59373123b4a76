//! `holdfast doctor`

mod browsers;

use std::process::ExitCode;
use std::sync::Arc;

use holdfast_devices::Device;
use holdfast_devices::cpu::{CpuEngine, CpuOptions};
use holdfast_models::Store;
use serde_json::json;

use crate::args::{DoctorArgs, Global};
use crate::output::{self, plural};

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    /// Of which browser it is told.
    browser: Option<String>,
    verdict: Verdict,
    text: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Fine,
    /// It does not work and nothing depends on it.
    Note,
    Broken,
}

impl Finding {
    fn of_machine(what: &'static str, is_fine: bool, text: String) -> Finding {
        let verdict = if is_fine { Verdict::Fine } else { Verdict::Broken };
        Finding { what, browser: None, verdict, text }
    }

    fn is_fine(&self) -> bool {
        self.verdict != Verdict::Broken
    }
}

pub(crate) fn run(global: &Global, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut findings = vec![processor()];
    let home = global.home()?;
    match Store::open(&home) {
        Ok(store) => {
            findings.push(store_finding(&store));
            let store = Arc::new(store);
            findings.push(engine(global, store.clone()));
            // Lanes need the engine, which prepares models for them.
            let engine_works = findings.last().is_some_and(Finding::is_fine);
            if !args.no_browser && engine_works {
                findings.extend(browsers::examine(global, args, store)?);
            }
        }
        Err(error) => findings.push(Finding::of_machine("store", false, error.to_string())),
    }
    let is_fine = findings.iter().all(Finding::is_fine);
    match global.json {
        true => print_json(&findings, is_fine)?,
        false => print(&findings)?,
    }
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_json(findings: &[Finding], is_fine: bool) -> anyhow::Result<()> {
    let rows = findings.iter().map(|finding| {
        json!({
            "what": finding.what,
            "browser": finding.browser,
            "fine": finding.is_fine(),
            "text": finding.text,
        })
    });
    output::print_json(&json!({ "fine": is_fine, "findings": rows.collect::<Vec<_>>() }))
}

fn print(findings: &[Finding]) -> anyhow::Result<()> {
    for Finding { what, browser, verdict, text } in findings {
        let verdict = match verdict {
            Verdict::Fine => "ok  ",
            Verdict::Note => "note",
            Verdict::Broken => "FAIL",
        };
        // What a browser gives stands below it.
        let indent = if browser.is_some() && *what != "browser" { "  " } else { "" };
        output::line(format!("{verdict} {indent}{what}: {text}"))?;
    }
    Ok(())
}

fn processor() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    Finding::of_machine("processor", true, format!("{}, {system}", plural(cores, "core")))
}

fn store_finding(store: &Store) -> Finding {
    let (is_fine, text) = match store.models() {
        Ok(models) => match models.unreadable.first() {
            None => {
                let count = plural(models.readable.len(), "model");
                (true, format!("{count} in {}", store.home().display()))
            }
            Some((name, problem)) => (false, format!("`{name}` cannot be used: {problem}")),
        },
        Err(error) => (false, error.to_string()),
    };
    Finding::of_machine("store", is_fine, text)
}

fn engine(global: &Global, store: Arc<Store>) -> Finding {
    let options = CpuOptions { library: global.onnxruntime.clone(), ..CpuOptions::default() };
    let (is_fine, text) = match CpuEngine::new(store, options) {
        Ok(engine) => {
            let info = engine.info();
            let library = engine.library().display();
            (true, format!("{} on {} ({library})", info.engine, info.adapter))
        }
        Err(error) => (false, error.to_string()),
    };
    Finding::of_machine("cpu engine", is_fine, text)
}
