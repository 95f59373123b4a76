//! `holdfast doctor`

use std::process::ExitCode;
use std::sync::Arc;

use holdfast_devices::cpu::{CpuEngine, CpuOptions};
use holdfast_devices::{Calibration, Device};
use holdfast_models::Store;
use holdfast_wire::Backend;
use serde_json::json;

use crate::args::{DoctorArgs, Global};
use crate::output::{self, Spinner, plural};
use crate::place::{Place, browser_options, pool_options};

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    fine: bool,
    text: String,
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
            let engine_works = findings.last().is_some_and(|finding| finding.fine);
            if !args.no_browser && engine_works {
                findings.extend(browser(global, args, store)?);
            }
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

fn engine(global: &Global, store: Arc<Store>) -> Finding {
    let options = CpuOptions { library: global.onnxruntime.clone(), ..CpuOptions::default() };
    let (fine, text) = match CpuEngine::new(store, options) {
        Ok(engine) => {
            let info = engine.info();
            let library = engine.library().display();
            (true, format!("{} on {} ({library})", info.engine, info.adapter))
        }
        Err(error) => (false, error.to_string()),
    };
    Finding { what: "cpu engine", fine, text }
}

/// The browser that would be started, and what it gives when it really is.
fn browser(global: &Global, args: &DoctorArgs, store: Arc<Store>) -> anyhow::Result<Vec<Finding>> {
    let spinner = Arc::new(Spinner::new("looking for a browser"));
    let options = browser_options(global, &args.browser)?;
    let installed = match options.choose(&|text| spinner.say(text.to_owned())) {
        Ok(installed) => installed,
        Err(error) => {
            let text = format!("{:#}", anyhow::Error::from(error));
            return Ok(vec![Finding { what: "browser", fine: false, text }]);
        }
    };
    let text = format!("{installed} ({})", installed.program.display());
    let mut findings = vec![Finding { what: "browser", fine: true, text }];
    let progress = Arc::new(move |text: &str| spinner.say(text.to_owned()));
    let options = pool_options(global, Some(&args.browser), None, progress)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let place = Place::here(store, options, true).await?;
        if let Place::Here { pool, .. } = &place {
            for backend in [Backend::Wasm, Backend::Webgpu, Backend::Webnn] {
                let (fine, text) = match pool.lane(backend).await {
                    Ok(lane) => (true, describe(&lane)),
                    // Models run on the others, so a missing one is no failure of the machine.
                    Err(reason) => (backend != Backend::Wasm, format!("not here: {reason}")),
                };
                findings.push(Finding { what: backend.name(), fine, text });
            }
        }
        place.close().await;
        Ok(findings)
    })
}

fn describe(lane: &impl Device) -> String {
    let info = lane.info();
    let accelerated = if info.accelerated { "accelerated" } else { "no accelerator" };
    let measured = info.calibration.as_ref().map_or(String::new(), |measured| {
        let Calibration { matmul_flops, launch, .. } = measured;
        let launch = output::milliseconds(*launch);
        format!("; {:.1} GFLOP/s, launch {launch}", matmul_flops / 1e9)
    });
    let advice = match info.adapter.contains("software adapter") {
        true => "; for a GPU, install its driver and use a browser that shows it on its GPU page",
        false => "",
    };
    format!("{}, {accelerated}{measured}{advice}", info.adapter)
}
