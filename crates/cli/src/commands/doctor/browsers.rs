//! What each browser of this machine gives: started for a moment, one after the other so that they
//! do not slow each other down, and measured on every backend.

use std::sync::Arc;
use std::time::Duration;

use holdfast_browsers::{Browser, BrowserError, Found, Installed, Kind, Launch, at, find};
use holdfast_devices::lane::{Lane, LaneOptions, Lanes};
use holdfast_devices::{Calibration, Device, Secret};
use holdfast_models::Store;
use holdfast_pool::{BrowserOptions, explain};
use holdfast_server::{Server, ServerOptions};
use holdfast_wire::{Backend, WebGpuInfo, WebNnInfo};

use super::{Finding, Verdict};
use crate::args::{DoctorArgs, Global};
use crate::output::{self, Spinner};
use crate::place::browser_options;

/// How long a browser has to join.
const JOIN_LIMIT: Duration = Duration::from_secs(30);
/// How long one measurement may take.
const MEASURE_LIMIT: Duration = Duration::from_secs(20);

/// Looks at the browser that is asked for, or else at every one that is found.
pub(super) fn examine(
    global: &Global,
    args: &DoctorArgs,
    store: Arc<Store>,
) -> anyhow::Result<Vec<Finding>> {
    let spinner = Spinner::new("looking for browsers");
    let options = browser_options(global, &args.browser)?;
    let found = match choose(&options, &args.browser.browser, &|text| spinner.say(text.to_owned()))
    {
        Ok(found) => found,
        Err(error) => {
            let text = explain(&error);
            return Ok(vec![Finding::of_machine("browser", false, text)]);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let lanes = Arc::new(Lanes::new(store, LaneOptions::default()));
        let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let server_options = ServerOptions { address, ..ServerOptions::default() };
        let server = Server::start(lanes.clone(), server_options).await?;
        let examination = Examination { options, lanes, link: server.join_link(), spinner };
        let mut findings = Vec::new();
        for installed in found.browsers {
            findings.extend(examination.examine(installed).await);
        }
        let note = |text| Finding { what: "browser", browser: None, verdict: Verdict::Note, text };
        findings.extend(found.notes.into_iter().map(note));
        server.stop(Duration::ZERO).await;
        Ok(findings)
    })
}

/// The browsers to look at: those of the kinds that are named, or all; an error if there is none.
fn choose(
    options: &BrowserOptions,
    kinds: &[Kind],
    progress: &dyn Fn(&str),
) -> Result<Found, BrowserError> {
    if let Some(program) = &options.program {
        return Ok(Found { browsers: vec![at(program)?], notes: vec![] });
    }
    let found = find(&options.cache, progress);
    if kinds.is_empty() {
        found.pick(None)?;
        return Ok(found);
    }
    let browsers = kinds.iter().map(|&kind| found.pick(Some(kind)).cloned());
    Ok(Found { browsers: browsers.collect::<Result<_, _>>()?, notes: vec![] })
}

struct Examination {
    options: BrowserOptions,
    lanes: Arc<Lanes>,
    link: String,
    spinner: Spinner,
}

impl Examination {
    async fn examine(&self, installed: Installed) -> Vec<Finding> {
        let name = installed.to_string();
        let finding =
            |what, verdict, text| Finding { what, browser: Some(name.clone()), verdict, text };
        let text = format!("{installed} ({})", installed.program.display());
        self.spinner.say(format!("starting {name}"));
        let (browser, page) = match self.start(installed).await {
            Ok(started) => started,
            Err(error @ BrowserError::ByHand { .. }) => {
                return vec![finding("browser", Verdict::Note, format!("{text}: {error}"))];
            }
            Err(error) => {
                let text = format!("{text}: {}", explain(&error));
                return vec![finding("browser", Verdict::Broken, text)];
            }
        };
        let mut findings = vec![finding("browser", Verdict::Fine, text)];
        for backend in [Backend::Wasm, Backend::Webgpu, Backend::Webnn] {
            self.spinner.say(format!("measuring {} in {name}", backend.name()));
            let (verdict, text) = match self.measure(&browser, &page, backend).await {
                Ok(Ok(lane)) => (Verdict::Fine, describe(&lane)),
                // Models run on the others, so a missing one is no failure of the machine.
                Ok(Err(reason)) => (Verdict::Fine, format!("not here: {reason}")),
                Err(problem) => (Verdict::Broken, problem),
            };
            findings.push(finding(backend.name(), verdict, text));
            if verdict == Verdict::Broken {
                // What else it has would only be waited for in vain.
                break;
            }
        }
        if let Err(error) = browser.close().await {
            findings.push(finding("browser", Verdict::Broken, explain(&error)));
        }
        findings
    }

    /// Starts a browser, and gives the name by which its page is known.
    async fn start(&self, installed: Installed) -> Result<(Browser, String), BrowserError> {
        let page = Secret::random().reveal().to_owned();
        let link = format!("{}&page={page}", self.link);
        let mut launch = Launch::new(installed, link, self.options.guard.clone());
        launch.headless = self.options.headless;
        Ok((launch.start().await?, page))
    }

    /// The lane of a backend, measured, or the reason why there is none. The error is a browser
    /// that does not do what it says.
    async fn measure(
        &self,
        browser: &Browser,
        page: &str,
        backend: Backend,
    ) -> Result<Result<Lane, String>, String> {
        let joined = self.lanes.wait_for(|lane| {
            let is_told = lane.backend() == backend || missing(lane, backend).is_some();
            lane.hello().page == page && lane.is_connected() && is_told
        });
        let joined = tokio::time::timeout(JOIN_LIMIT, browser.while_running(joined)).await;
        let lane = joined
            .map_err(|_| format!("it did not join within {} s", JOIN_LIMIT.as_secs()))?
            .map_err(|error| explain(&error))?;
        if let Some(reason) = missing(&lane, backend) {
            return Ok(Err(reason));
        }
        tokio::time::timeout(MEASURE_LIMIT, lane.calibrate())
            .await
            .map_err(|_| format!("it computed nothing within {} s", MEASURE_LIMIT.as_secs()))?
            .map_err(|error| format!("it failed its first measurement: {}", explain(&error)))?;
        Ok(Ok(lane))
    }
}

/// Why a browser has no such backend, by what one of its lanes said.
fn missing(lane: &Lane, backend: Backend) -> Option<String> {
    let hello = lane.hello();
    match (backend, &hello.webgpu, &hello.webnn) {
        (Backend::Webgpu, WebGpuInfo::Missing { reason }, _)
        | (Backend::Webnn, _, WebNnInfo::Missing { reason }) => Some(reason.clone()),
        _ => None,
    }
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
