//! `holdfast bench`: how fast models run here, for users. It measures and judges nothing.

mod class;
pub(crate) mod feed;
mod latencies;
mod measure;
mod report;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use holdfast_browsers::{Found, Installed, Kind, at, find};
use holdfast_models::Store;
use holdfast_pool::{BrowserOptions, Choice, Choices, Priority, Request};
use holdfast_wire::Backend;

use crate::args::{BenchArgs, Global};
use crate::chosen::{Chosen, choose};
use crate::output::Spinner;
use crate::place::{Place, Wanted, pool_options};
use feed::{Feed, Sizes, feed};
use measure::{Load, Measured, measure};
use report::{Fed, Outcome, Report, Setting};

pub(crate) fn run(global: &Global, args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let store = Arc::new(global.store()?);
    let (fed, requests): (Vec<Fed>, Vec<Request>) = args
        .models
        .iter()
        .map(|name| prepare(&store, name, args))
        .collect::<anyhow::Result<Vec<_>>>()?
        .into_iter()
        .unzip();
    let bench = Bench { global, args, store, requests };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcomes = runtime.block_on(async {
        if args.all { bench.everywhere().await } else { bench.as_asked().await }
    })?;
    let report = Report { fed, outcomes, load: bench.load() };
    report.print(global.json)?;
    Ok(if report.every_model_was_measured() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a model is fed.
fn prepare(store: &Store, name: &str, args: &BenchArgs) -> anyhow::Result<(Fed, Request)> {
    let (variant, component) = (args.variant.as_deref(), args.component.as_deref());
    let Chosen { component, .. } = choose(store, name, variant, component)?;
    let graph = store.open_graph(&component.graph)?;
    let sizes =
        Sizes { batch: args.batch as usize, tokens: args.tokens as usize, dims: &args.dims };
    let Feed { tensors, fed, kind } =
        feed(&graph, &component.role.0, &sizes).with_context(|| format!("cannot feed `{name}`"))?;
    let request = Request {
        model: name.to_owned(),
        graph: component.graph,
        kind,
        inputs: tensors,
        choices: args.device.clone(),
        priority: Priority::Normal,
        // The same inputs come again and again: what is kept of them must not count as speed.
        share: false,
        namespace: String::new(),
        deadline: None,
    };
    Ok((Fed { model: name.to_owned(), inputs: fed }, request))
}

struct Bench<'a> {
    global: &'a Global,
    args: &'a BenchArgs,
    store: Arc<Store>,
    requests: Vec<Request>,
}

impl Bench<'_> {
    fn load(&self) -> Load {
        let BenchArgs { concurrent, warm_up, duration, .. } = *self.args;
        Load { concurrent: concurrent.into(), warm_up, duration }
    }

    /// On what the user asked for, in the running server or here.
    async fn as_asked(&self) -> anyhow::Result<Vec<Outcome>> {
        let spinner = Arc::new(Spinner::new("preparing"));
        let choices = &self.args.device;
        let wanted = Wanted {
            fleet: &self.args.fleet,
            threads: self.args.threads,
            with_browser: choices.need_browser(),
        };
        let place = Place::find(self.global, &self.store, wanted, spinner.clone()).await?;
        let server = match &place {
            Place::There(server) => Some(server.origin.clone()),
            Place::Here { .. } => None,
        };
        let setting = Setting { device: Some(choices.to_string()), browser: None, server };
        let place = Arc::new(place);
        let measured = self.measure(&place, choices, &spinner).await;
        close(place, &spinner).await;
        Ok(vec![Outcome { setting, measured: Ok(measured) }])
    }

    /// On the processor, then on every backend of every browser.
    async fn everywhere(&self) -> anyhow::Result<Vec<Outcome>> {
        let spinner = Arc::new(Spinner::new("looking for browsers"));
        let say = {
            let spinner = spinner.clone();
            Arc::new(move |text: &str| spinner.say(text.to_owned()))
        };
        let fleet = &self.args.fleet;
        let options = pool_options(self.global, Some(fleet), self.args.threads, say.clone())?;
        let browser = options.browser.clone().context("no browser may be started")?;
        let cpu = Choices::Ordered(vec![Choice::Cpu]);
        let place = Arc::new(Place::here(self.store.clone(), options.clone(), false).await?);
        let measured = self.measure(&place, &cpu, &spinner).await;
        close(place, &spinner).await;
        let mut outcomes =
            vec![Outcome { setting: setting(Some(cpu), None), measured: Ok(measured) }];

        let (found, problems) = browsers(&browser, &fleet.browser.browser, &*say);
        outcomes.extend(problems.into_iter().map(|(browser, problem)| Outcome {
            setting: setting(None, Some(browser)),
            measured: Err(problem),
        }));
        for installed in found {
            if !installed.kind.can_be_launched() {
                let problem = "it cannot be started by a program; open the link of `holdfast \
                               serve` in it, and measure while that runs";
                let setting = setting(None, Some(installed.to_string()));
                outcomes.push(Outcome { setting, measured: Err(problem.to_owned()) });
                continue;
            }
            let mut options = options.clone();
            options.browser = Some(of(&browser, &installed));
            let place = Arc::new(Place::here(self.store.clone(), options, true).await?);
            outcomes.extend(self.in_browser(&place, &installed, &spinner).await);
            close(place, &spinner).await;
        }
        Ok(outcomes)
    }

    async fn in_browser(
        &self,
        place: &Arc<Place>,
        installed: &Installed,
        spinner: &Spinner,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for backend in [Backend::Wasm, Backend::Webgpu, Backend::Webnn] {
            let choices = Choices::Ordered(vec![Choice::Lane(backend)]);
            let measured = self.measure(place, &choices, spinner).await;
            let setting = setting(Some(choices), Some(installed.to_string()));
            outcomes.push(Outcome { setting, measured: Ok(measured) });
            if place.has_no_lanes() {
                // It did not join, and would only be waited for again.
                break;
            }
        }
        outcomes
    }

    async fn measure(&self, place: &Arc<Place>, choices: &Choices, spinner: &Spinner) -> Measured {
        measure(place, &self.requests, choices, self.load(), spinner).await
    }
}

/// A setting that was chosen here, in a pool of its own.
fn setting(choices: Option<Choices>, browser: Option<String>) -> Setting {
    Setting { device: choices.map(|choices| choices.to_string()), browser, server: None }
}

async fn close(place: Arc<Place>, spinner: &Spinner) {
    spinner.say("ending");
    // All callers have ended by now.
    if let Some(place) = Arc::into_inner(place) {
        place.close().await;
    }
}

/// The browsers to measure, and what was asked for or seen and cannot be.
fn browsers(
    options: &BrowserOptions,
    kinds: &[Kind],
    progress: &dyn Fn(&str),
) -> (Vec<Installed>, Vec<(String, String)>) {
    let problem = |on: String, error: &dyn std::error::Error| (on, holdfast_pool::explain(error));
    if let Some(program) = &options.program {
        return match at(program) {
            Ok(installed) => (vec![installed], vec![]),
            Err(error) => (vec![], vec![problem(program.display().to_string(), &error)]),
        };
    }
    let Found { browsers, notes } = find(&options.cache, progress);
    if kinds.is_empty() {
        let notes = notes.into_iter().map(|note| ("a browser".to_owned(), note));
        return (browsers, notes.collect());
    }
    let found = Found { browsers, notes };
    let (mut browsers, mut problems) = (Vec::new(), Vec::new());
    for &kind in kinds {
        match found.pick(Some(kind)) {
            Ok(installed) => browsers.push(installed.clone()),
            Err(error) => problems.push(problem(kind.to_string(), &error)),
        }
    }
    (browsers, problems)
}

/// The options that start just this browser.
fn of(options: &BrowserOptions, installed: &Installed) -> BrowserOptions {
    // The packaged one runs with libraries that only the search knows.
    let (program, kinds) = match installed.kind {
        Kind::Packaged => (None, vec![Kind::Packaged]),
        _ => (Some(installed.program.clone()), vec![]),
    };
    BrowserOptions { program, kinds, ..options.clone() }
}
