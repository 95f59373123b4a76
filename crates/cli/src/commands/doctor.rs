//! `holdfast doctor`

use std::process::ExitCode;
use std::sync::Arc;

use holdfast_devices::Device;
use holdfast_devices::cpu::{CpuEngine, CpuOptions};
use holdfast_models::Store;
use serde_json::json;

use crate::args::Global;
use crate::output::{self, plural};

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    fine: bool,
    text: String,
}

pub(crate) fn run(global: &Global) -> anyhow::Result<ExitCode> {
    let mut findings = vec![processor()];
    let home = global.home()?;
    match Store::open(&home) {
        Ok(store) => {
            findings.push(store_finding(&store));
            findings.push(engine(global, store));
        }
        Err(error) => {
            findings.push(Finding { what: "store", fine: false, text: error.to_string() })
        }
    }
    let fine = findings.iter().all(|finding| finding.fine);
    if global.json {
        let rows = findings.iter().map(
            |finding| json!({ "what": finding.what, "fine": finding.fine, "text": finding.text }),
        );
        output::print_json(&json!({ "fine": fine, "findings": rows.collect::<Vec<_>>() }))?;
    } else {
        for Finding { what, fine, text } in &findings {
            output::line(format!("{} {what}: {text}", if *fine { "ok  " } else { "FAIL" }))?;
        }
    }
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn processor() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    Finding { what: "processor", fine: true, text: format!("{}, {system}", plural(cores, "core")) }
}

fn store_finding(store: &Store) -> Finding {
    let (fine, text) = match store.models() {
        Ok(models) => match models.unreadable.first() {
            None => {
                let count = plural(models.readable.len(), "model");
                (true, format!("{count} in {}", store.home().display()))
            }
            Some((name, problem)) => (false, format!("`{name}` cannot be used: {problem}")),
        },
        Err(error) => (false, error.to_string()),
    };
    Finding { what: "store", fine, text }
}

fn engine(global: &Global, store: Store) -> Finding {
    let options = CpuOptions { library: global.onnxruntime.clone(), ..CpuOptions::default() };
    let (fine, text) = match CpuEngine::new(Arc::new(store), options) {
        Ok(engine) => {
            let info = engine.info();
            let library = engine.library().display();
            (true, format!("{} on {} ({library})", info.engine, info.adapter))
        }
        Err(error) => (false, error.to_string()),
    };
    Finding { what: "cpu engine", fine, text }
}
